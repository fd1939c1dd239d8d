"""Traffic figures by tenant, counted by every worker and kept over restarts."""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from administration import make_desk
from factories import Live, Site, make_site
from hlas.api.admin.access import reach
from hlas.errors import Unavailable
from hlas.observe import traffic
from hlas.observe.traffic import SAMPLES, Traffic
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.tenants.audit import SERVICE


async def read_counts(operators: Database, tenant_id: str, span: str = "minute") -> dict[str, int]:
    """By kind and detail; the latency buckets are added up."""
    rows = await operators.all(
        "select kind, detail, sum(count)::int as count from traffic "
        "where tenant_id = $1::text::uuid and span = $2 group by 1, 2",
        tenant_id,
        span,
    )
    found: dict[str, int] = {}
    for row in rows:
        name = "latency" if row["kind"] == "latency" else f"{row['kind']}:{row['detail']}"
        found[name] = found.get(name, 0) + row["count"]
    return found


@pytest.mark.settings(rate_limit_messages_conversation="4/min")
async def test_what_happens_is_counted_for_its_tenant(
    live_server: Live, operators: Database
) -> None:
    """Messages, sessions, replays, conflicts, refusals and latency, each at its own tenant."""
    site = await make_site(live_server, operators)
    other = await make_site(live_server, operators)
    await operators.execute("update conversations set handler = 'agent'")
    await site.send("one", key="a")
    await site.send("one", key="a")
    await site.send("two", key="a")
    # The answer to the first message is complete before the next one is sent.
    await live_server.client.post("/widget/messages/assistant", headers=site.headers(), json={})
    await site.send("three")
    assert (await site.send("four")).status_code == 429
    await live_server.client.post("/widget/messages/assistant", headers=site.headers(), json={})
    flow: Traffic = live_server.app.state.services.traffic
    await flow.flush(operators)
    await flow.flush(operators)
    expected = {
        "session:created": 1,
        "message:user": 2,
        "message:assistant": 2,
        "idempotency:miss": 1,
        "idempotency:hit": 1,
        "idempotency:conflict": 1,
        "blocked:rate_limited/conversation": 1,
        "latency": 3,
    }
    assert await read_counts(operators, site.tenant_id) == expected
    assert await read_counts(operators, site.tenant_id, "hour") == expected
    assert await read_counts(operators, other.tenant_id) == {"session:created": 1}


async def test_blocked_requests_can_be_found_again(site: Site, operators: Database) -> None:
    """A refusal is listed by its request id, with its tenant, without the request's content."""
    text = "x" * 2001
    answer = await site.send(text)
    assert answer.status_code == 422
    await site.live.client.post(
        "/widget/messages", headers=site.headers(), json={"text": "y" * 70_000}
    )
    await site.live.app.state.services.traffic.flush(operators)
    found, following = await traffic.list_blocked(
        operators, request_id=answer.headers["X-Request-Id"]
    )
    assert following is None
    (blocked,) = found
    assert (blocked.slug, blocked.reason) == (site.slug, "text_too_long")
    assert blocked.scope == "request"
    assert str(blocked.conversation_id) == site.conversation_id
    assert text not in str(asdict(blocked))
    (unknown,) = (await traffic.list_blocked(operators, reason="payload_too_large"))[0]
    assert unknown.tenant_id == SERVICE


async def test_workers_add_up(operators: Database) -> None:
    """Workers that write the same minute at the same time lose no count and do not deadlock."""
    workers = [Traffic() for _ in range(6)]
    for worker in workers:
        for kind in ("message", "session", "blocked"):
            for detail in "abcdef":
                worker.count(kind, detail)
    for _ in range(3):
        await asyncio.gather(*(worker.flush(operators) for worker in workers))
        for worker in workers:
            worker.count("message", "a")
    await asyncio.gather(*(worker.flush(operators) for worker in workers))
    found = await read_counts(operators, str(SERVICE))
    assert found["message:a"] == 6 * 4
    assert sum(found.values()) == 6 * 18 + 6 * 3


async def test_a_database_that_is_away_costs_no_count(
    operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts that could not be written are written later, once; a flood keeps a sample."""
    flow = Traffic()
    flow.count("message", "user")
    for _ in range(SAMPLES * 3):
        flow.block("rate_limited", "ip", "/widget/messages")

    async def away(*_: Any) -> str:
        raise Unavailable

    with monkeypatch.context() as broken:
        broken.setattr(operators, "execute", away)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await flow.flush(operators)
    flow.count("message", "user")
    await flow.flush(operators)
    await flow.flush(operators)
    assert await read_counts(operators, str(SERVICE)) == {
        "message:user": 2,
        "blocked:rate_limited/ip": SAMPLES * 3,
    }
    row = await operators.one("select count(*) as number from blocked")
    assert row is not None
    assert row["number"] == SAMPLES


async def test_blocked_requests_in_order(
    operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newest first, also in a flood, and each once even if the response to a write was lost."""
    flow = Traffic()
    routes = [f"/{number}" for number in range(SAMPLES)]
    for route in routes:
        flow.block("rate_limited", "ip", route)
    execute = operators.execute

    async def lose_the_answer(query: str, *arguments: Any) -> str:
        await execute(query, *arguments)
        if query == traffic.queries.add_blocked:
            raise Unavailable
        return ""

    with monkeypatch.context() as broken:
        broken.setattr(operators, "execute", lose_the_answer)
        with pytest.raises(Unavailable):
            await flow.flush(operators)
    await flow.flush(operators)
    found, _ = await traffic.list_blocked(operators, limit=2 * SAMPLES)
    assert [one.route for one in found] == routes[::-1]


async def test_old_traffic_is_forgotten(operators: Database) -> None:
    """Minutes are kept for hours, hours and blocked requests for eight days."""
    for span, hours in (("minute", 2), ("minute", 4), ("hour", 190), ("hour", 195)):
        await operators.execute(
            "insert into traffic values (gen_random_uuid(), $1, $2, 'message', 'user', 1)",
            span,
            datetime.now(UTC) - timedelta(hours=hours),
        )
    for days in (7, 9):
        moment = datetime.now(UTC) - timedelta(days=days)
        await operators.execute(
            "insert into blocked values ($1, $2, 'rate_limited', 'ip', '/', null, 'x', $3)",
            SERVICE,
            UUID(int=int(moment.timestamp() * 1000) << 80),
            moment,
        )
    await traffic.forget(operators)
    rows = await operators.all("select span from traffic order by start desc")
    assert [row["span"] for row in rows] == ["minute", "hour"]
    assert len((await traffic.list_blocked(operators))[0]) == 1


async def test_a_tenants_administrator_sees_its_own(live_server: Live, operators: Database) -> None:
    """Edge case 37: a tenant's administrator sees no traffic of other tenants."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    for site in (own, other):
        await site.send("x" * 2001)
    await live_server.app.state.services.traffic.flush(operators)
    desk = await make_desk(live_server, operators, own.slug)
    administrator = await administrators.verify(operators, desk.key)
    confined = reach(live_server.app.state.services, administrator)
    since = datetime.now(UTC) - timedelta(hours=1)
    assert {one.slug for one in await traffic.count_by_tenant(confined, "minute", since)} == {
        own.slug
    }
    assert {one.slug for one in (await traffic.list_blocked(confined))[0]} == {own.slug}
    foreign = UUID(other.tenant_id)
    assert await traffic.count_by_start(confined, "minute", since, foreign) == []
    assert (await traffic.list_blocked(confined, tenant_id=foreign))[0] == []
