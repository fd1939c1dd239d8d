"""Edge case 62: many runs at a cap, in two processes on one database.

Fails with these defects planted in reserve_spend: the budget not locked (over the cap), the amount
of the day replaced instead of raised (the books do not add up).
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from hlas.agent.money import budgets
from hlas.store.db import Database
from hlas.tenants import tenants
from spenders import spend, start_process

# More than what one process spends, less than both.
CAP = 12_000


@dataclass
class Auditor:
    """Reads the books again and again, each time in one snapshot."""

    operators: Database
    samples: list[tuple[int, int]] = field(default_factory=list)

    async def look(self) -> None:
        row = await self.operators.one(
            "select (select coalesce(sum(amount), 0)::bigint from spend) as spent,"
            " (select coalesce(sum(amount), 0)::bigint from reservations) as reserved"
        )
        assert row is not None
        self.samples.append((row["spent"], row["reserved"]))

    async def keep_looking(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(0.002)

    def check(self) -> None:
        assert len(self.samples) > 20
        assert max(spent for spent, _ in self.samples) <= CAP
        assert all(spent == reserved for spent, reserved in self.samples)


@pytest_asyncio.fixture
async def tenant_id(operators: Database) -> str:
    made = await tenants.add(operators, "Shop", "shop", [])
    await budgets.set_caps(operators, "shop", {"day": CAP, "month": CAP, "conversation": None})
    return str(made.id)


async def count_deadlocks(operators: Database) -> int:
    row = await operators.one(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    assert row is not None
    return int(row["deadlocks"])


@pytest.mark.timeout(180)
async def test_never_over_the_cap(operators: Database, database_url: str, tenant_id: str) -> None:
    """Edge case 62: 64 runs in two processes, 5 % of the requests never settled.

    Never over the cap in any sample, the books add up in each, and no deadlock.
    """
    auditor = Auditor(operators)
    looking = asyncio.create_task(auditor.keep_looking())
    here: Counter[str] = Counter()
    async with start_process(database_url, tenant_id, 1) as process:
        (output, _), _ = await asyncio.gather(
            process.communicate(b"\n"),
            spend(database_url, tenant_id, 2, lambda outcome: here.update([outcome])),
        )
        assert process.returncode == 0
    there = Counter(output.decode().split())
    looking.cancel()
    await auditor.look()
    auditor.check()
    for outcomes in (here, there):
        assert min(outcomes[name] for name in ("settled", "lost", "day")) > 0, outcomes
    assert await count_deadlocks(operators) == 0
    row = await operators.one("select sum(requests)::bigint as requests from spend")
    reservations = await operators.one(
        "select count(*) as total, count(*) filter (where not is_settled) as open from reservations"
    )
    assert row is not None
    assert reservations is not None
    both = here + there
    assert row["requests"] == reservations["total"]
    if not both["unavailable"]:
        assert reservations["open"] == both["lost"]
        assert reservations["total"] == both["lost"] + both["settled"]


@pytest.mark.timeout(180)
async def test_a_process_is_killed(operators: Database, database_url: str, tenant_id: str) -> None:
    """Edge case 62: a process killed among its reservations leaves them open, in full."""
    auditor = Auditor(operators)
    looking = asyncio.create_task(auditor.keep_looking())
    async with start_process(database_url, tenant_id, 3) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        for _ in range(40):
            assert await process.stdout.readline()
        process.kill()
        await process.wait()
    await spend(database_url, tenant_id, 4, lambda _: None)
    looking.cancel()
    await auditor.look()
    auditor.check()
    row = await operators.one("select count(*) as open from reservations where not is_settled")
    assert row is not None
    assert row["open"] > 0
    assert await count_deadlocks(operators) == 0
