"""A tenant's cap holds while many answers are made at once and a server is killed."""

import asyncio
import io
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from typing import Any

import asyncpg

from administration import wait_for_locks
from factories import Live, Site
from hlas.agent.loop import MONEY_CONNECTIONS, MONEY_STATEMENT_SECONDS
from hlas.store.db import Database
from hlas.tenants import tenants
from model_scripts import Await, Say, Step, Usage, find_text
from modelled import give_model
from processes import UNLIMITED, Served, serve_process
from scripted_model import ScriptedModel

ORIGIN = "https://budget.example"
VISITORS = 64
# Answers that are under way when the others are asked for.
HELD = 14
# Reservations that the cap has room for.
ROOM = HELD + 1
# One statement, so that both sums are of one moment.
SAMPLE = """
select (select coalesce(max(one.amount), 0)::bigint
        from (select sum(amount) as amount from spend
              where tenant_id = $1::text::uuid group by day) one) as day_amount,
       (select coalesce(sum(amount), 0)::bigint from spend where tenant_id = $1::text::uuid)
           as spent,
       (select coalesce(sum(amount), 0)::bigint from reservations
        where tenant_id = $1::text::uuid) as reserved
"""
COUNTS = """
select (select count(*) from reservations where tenant_id = $1::text::uuid) as reservations,
       (select count(*) from reservations where tenant_id = $1::text::uuid and not is_settled)
           as unsettled,
       (select sum(requests)::bigint from spend where tenant_id = $1::text::uuid) as requests,
       (select count(*) from messages where tenant_id = $1::text::uuid and role = 'assistant')
           as answers
"""
ANSWERS = """
select conversation_id::text as conversation_id, content, meta->>'reason' as reason
from messages
where tenant_id = $1::text::uuid and role = 'assistant'
"""


class Gate:
    """A script: some answers begin and then wait, others are complete at once."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.held = 0

    def __call__(self, body: dict[str, Any]) -> Iterable[Step]:
        text = find_text(body)
        if "hold" in text:
            self.held += 1
            return [Say("It is"), Await(self.opened), Say(" the end.")]
        return [Say("At once."), *([Usage("none")] if "uncounted" in text else [])]


class Samples:
    """What was spent at many moments; the books add up in each of them."""

    def __init__(self, operators: Database, tenant_id: str) -> None:
        self._operators = operators
        self._tenant_id = tenant_id
        self.count = 0
        self.most = 0

    async def take(self) -> None:
        row = await self._operators.one(SAMPLE, self._tenant_id)
        assert row is not None
        assert row["spent"] == row["reserved"]
        self.count += 1
        self.most = max(self.most, row["day_amount"])

    async def take_until_cancelled(self) -> None:
        while True:
            await self.take()
            await asyncio.sleep(0.005)


async def open_sites(servers: list[Served], tenant_id: str) -> list[Site]:
    """A visitor each, on the servers in turn."""
    lives = [Live(served.url, None, io.BytesIO(), served.client) for served in servers]
    sites = [Site(lives[number % 2], "budget", tenant_id, ORIGIN) for number in range(VISITORS)]
    await asyncio.gather(*(site.open() for site in sites))
    return sites


async def count(operators: Database, tenant_id: str) -> dict[str, int]:
    row = await operators.one(COUNTS, tenant_id)
    assert row is not None
    return dict(row)


async def send(site: Site, text: str) -> None:
    assert (await site.send(text)).status_code == 200


async def set_cap(operators: Database, tenant_id: str) -> int:
    """A cap with room for so many reservations of the size of those that there are."""
    row = await operators.one(
        "select max(amount) as amount from reservations where tenant_id = $1::text::uuid", tenant_id
    )
    assert row is not None
    cap: int = row["amount"] * ROOM
    await operators.execute(
        "update budgets set cap_day = $2 where tenant_id = $1::text::uuid", tenant_id, cap
    )
    return cap


async def contend(operators: Database, locker: asyncpg.Connection, sites: list[Site]) -> None:
    """All send at once; reservations on all connections of both servers wait and then race."""
    texts = ("say hold", "say counted", "say uncounted")
    await locker.execute("select from spend for update")
    async with asyncio.TaskGroup() as group:
        for number, site in enumerate(sites):
            group.create_task(send(site, texts[number // 2 % 3]))
        # Statements do not wait for longer than this.
        with suppress(TimeoutError):
            async with asyncio.timeout(MONEY_STATEMENT_SECONDS):
                await wait_for_locks(operators, 2 * MONEY_CONNECTIONS)
        await locker.execute("rollback")


async def test_cap_under_kill(
    database_url: str, operators: Database, locker: asyncpg.Connection
) -> None:
    """Edge case 62: 64 runs at a cap over two servers, one of them killed: never over the cap in
    any sample, the books add up, everybody is answered, no request without a reservation.
    """
    gate = Gate()
    variables: dict[str, Any] = {**UNLIMITED}
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(ScriptedModel(gate))
        servers = [
            await stack.enter_async_context(serve_process(database_url, **variables))
            for _ in range(2)
        ]
        tenant_id = str((await tenants.add(operators, "Budget", "budget", [ORIGIN])).id)
        await give_model(operators, tenant_id, provider.url)
        sites = await open_sites(servers, tenant_id)
        # Each server has answers under way that the kill, or their end, will meet.
        await asyncio.gather(*(send(site, "say hold") for site in sites[:HELD]))
        await provider.until(lambda: gate.held == HELD)
        cap = await set_cap(operators, tenant_id)

        samples = Samples(operators, tenant_id)
        sampling = asyncio.create_task(samples.take_until_cancelled())
        await contend(operators, locker, sites[HELD:])
        # Every run is answered, or under way at the provider.
        await until_answers(operators, tenant_id, lambda: VISITORS - gate.held)
        servers[0].process.kill()
        await provider.until(lambda: provider.left > 0)
        gate.opened.set()
        await until_answers(operators, tenant_id, lambda: VISITORS)
        sampling.cancel()
        await asyncio.wait({sampling})
        assert sampling.cancelled()
        await samples.take()

        assert 0 < samples.most <= cap
        assert samples.count > 10
        counts = await count(operators, tenant_id)
        assert counts["reservations"] == counts["requests"]
        assert len(provider.requests) <= counts["reservations"] < VISITORS
        assert 0 < counts["unsettled"] <= gate.held
        rows = await operators.all(ANSWERS, tenant_id)
        answered = sorted(row["conversation_id"] for row in rows)
        assert answered == sorted(site.conversation_id for site in sites)
        assert all(row["content"].strip() for row in rows)
        reasons = [row["reason"] for row in rows]
        assert set(reasons) == {None, "budget", "model_failed"}
        # Those of the killed server were not asked for again.
        assert reasons.count("model_failed") >= counts["unsettled"]


async def until_answers(operators: Database, tenant_id: str, wanted: Callable[[], int]) -> None:
    async with asyncio.timeout(60):
        while (await count(operators, tenant_id))["answers"] < wanted():  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.02)
