"""Retention in days.

Fails with these defects planted: days read as hours, the last message ignored, another
tenant's rows included, no batches, the advisory lock left out.
"""

import asyncio
import io
from itertools import pairwise

import pytest

from archives import counts, fill
from factories import Site, leave_to_people, serve_app
from hlas import services
from hlas.privacy import erasure, retention
from hlas.settings import Settings
from hlas.store.db import Database, log_in
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants


async def make_tenant(operators: Database, slug: str, days: int | None) -> str:
    made = await tenants.add(operators, slug, slug, [])
    await tenants.update(operators, slug, {"retention_days": days})
    return str(made.id)


async def events(operators: Database) -> list[tuple[str, str, dict[str, int]]]:
    rows = await operators.all(
        "select actor, action, after from events where action like 'retention%' order by id"
    )
    return [(row["actor"], row["action"], row["after"]) for row in rows]


async def test_only_what_is_too_old(operators: Database) -> None:
    """Each tenant has its own number of days; without one everything is kept."""
    short = await make_tenant(operators, "short", 10)
    long = await make_tenant(operators, "long", 100)
    forever = await make_tenant(operators, "forever", None)
    for tenant_id in (short, long, forever):
        for days in (5, 9.99, 10.01, 50):
            await fill(operators, tenant_id, 2, 4, days=days)
    done = await retention.run(operators)
    assert {slug: count.to_dict() for slug, count in done.items()} == {
        "short": {"conversations": 4, "messages": 16}
    }
    assert await counts(operators, short) == (4, 16, 16)
    assert await counts(operators, long) == (8, 32, 32)
    assert await counts(operators, forever) == (8, 32, 32)
    assert await retention.run(operators) == {}


async def test_the_last_message_counts(operators: Database) -> None:
    """An old conversation with a recent message is kept, like a new one without messages."""
    tenant_id = await make_tenant(operators, "shop", 10)
    lively, _ = await fill(operators, tenant_id, 2, 3, days=50)
    await operators.execute(
        "update conversations set last_message_at = now() where id = $1::text::uuid", lively
    )
    await fill(operators, tenant_id, 1, 0, days=1)
    await fill(operators, tenant_id, 1, 0, days=11)
    assert (await retention.run(operators))["shop"].to_dict() == {"conversations": 2, "messages": 3}
    assert await counts(operators, tenant_id) == (2, 3, 3)


async def test_small_batches(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction deletes more than a batch, not even of a single huge conversation."""
    tenant_id = await make_tenant(operators, "shop", 10)
    await fill(operators, tenant_id, 1, 47, days=20)
    await fill(operators, tenant_id, 30, 3, days=15)
    monkeypatch.setattr(erasure, "BATCH_MESSAGES", 10)
    left = []
    seen = erasure.remove_some

    async def watch(*arguments: object) -> None:
        left.append((await counts(operators, tenant_id))[1])
        # Between two batches the rest has no gap, for any reader: 1..n.
        torn = await operators.all(
            "select c.id from conversations c left join messages m on m.conversation_id = c.id"
            " group by c.id, c.last_seq"
            " having count(m.id) <> c.last_seq or max(m.seq) <> c.last_seq"
        )
        assert torn == []
        await seen(*arguments)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(erasure, "remove_some", watch)
    done = await retention.run(operators)
    assert done["shop"].to_dict() == {"conversations": 31, "messages": 137}
    steps = [before - after for before, after in pairwise(left)]
    assert max(steps) == 10
    assert await counts(operators, tenant_id) == (0, 0, 0)


async def test_audit(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row for each tenant and run, whatever the number of batches, with counts only."""
    monkeypatch.setattr(erasure, "BATCH_MESSAGES", 5)
    tenant_id = await make_tenant(operators, "shop", 10)
    await fill(operators, tenant_id, 6, 4, visitor_id="jana", days=20)
    await retention.run(operators)
    await retention.run(operators)
    assert await events(operators) == [
        ("retention", "retention.remove", {"conversations": 6, "messages": 24})
    ]


async def test_one_worker_at_a_time(operators: Database, database_url: str) -> None:
    """While one worker deletes, the others have nothing to do and do not wait."""
    tenant_id = await make_tenant(operators, "shop", 10)
    await fill(operators, tenant_id, 3, 2, days=20)
    busy = await log_in(Logins(database_url), OPERATOR)
    await busy.execute("begin")
    await busy.fetch(retention.queries.next_to_retire, tenant_id, 10_000, 1)
    assert await retention.run(operators) == {}
    await busy.execute("rollback")
    await busy.close()
    assert (await retention.run(operators))["shop"].conversations == 3


async def test_in_the_background(
    settings: Settings, logs: io.BytesIO, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running server does it automatically, logs one line, and serves visitors meanwhile."""
    monkeypatch.setattr(services, "FIRST_RETENTION_SECONDS", 0.2)
    origin = "https://shop.example"
    made = await tenants.add(operators, "Shop", "shop", [origin])
    await tenants.update(operators, "shop", {"retention_days": 1})
    await leave_to_people(operators)
    await fill(operators, str(made.id), 20, 50, visitor_id="jana", days=2)
    async with serve_app(settings, logs) as live:
        site = Site(live, "shop", str(made.id), origin)
        await site.open()
        sent = 0
        async with asyncio.timeout(60):
            while not live.events("retention_removed"):
                assert (await site.send(f"hello {sent}")).status_code == 200
                sent += 1
        [told] = live.events("retention_removed")
    assert (told["tenants"], told["conversations"], told["messages"]) == (1, 20, 1000)
    assert (await counts(operators, str(made.id)))[:2] == (1, sent)


async def test_stopped_half_way(operators: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted before a failure is in the audit."""
    monkeypatch.setattr(erasure, "BATCH_MESSAGES", 5)
    tenant_id = await make_tenant(operators, "shop", 10)
    await fill(operators, tenant_id, 4, 5, days=20)
    seen = erasure.remove_some
    calls = 0

    async def fail_third(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError("the network is gone")
        await seen(*arguments)  # type: ignore[arg-type]  # handed through

    monkeypatch.setattr(erasure, "remove_some", fail_third)
    with pytest.raises(Exception, match="unavailable"):
        await retention.run(operators)
    assert await events(operators) == [
        ("retention", "retention.remove", {"conversations": 2, "messages": 10})
    ]
    assert (await counts(operators, tenant_id))[:2] == (2, 10)
