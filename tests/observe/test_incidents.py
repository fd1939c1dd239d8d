"""Incidents: none below the threshold, one above it, for any number of workers.

Fails with these defects planted: `having` without the threshold, every check counted as new,
expired tokens counted, a count that shrinks, forged tokens without a tenant.
"""

import asyncio
import io
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest

from administration import make_desk
from factories import Live, Site, make_settings, make_site
from hlas import log
from hlas.api.admin.access import reach
from hlas.errors import Unavailable
from hlas.observe import incidents, traffic
from hlas.observe.incidents import SIGNS, Watch
from hlas.observe.metrics import INCIDENTS
from hlas.observe.traffic import Traffic
from hlas.operators import administrators
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from signing import Server

THRESHOLDS: dict[str, Any] = {f"incident_{kind}": 3 for kind in INCIDENTS}


@pytest.fixture
def few(database_url: str) -> Settings:
    return make_settings(database_url, **THRESHOLDS)


def add_signs(worker: Traffic, tenant_id: str, number: int, sign: tuple[str, str]) -> None:
    for _ in range(number):
        worker.count(*sign, tenant_id)


async def list_incidents(operators: Database) -> list[tuple[str, int]]:
    rows = await operators.all("select kind, count from incidents order by kind, started_at")
    return [(row["kind"], row["count"]) for row in rows]


async def tenant(operators: Database, slug: str = "shop") -> str:
    return str((await tenants.add(operators, slug, slug, [])).id)


def read_incidents(logs: io.BytesIO) -> list[dict[str, Any]]:
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "incident"]


def test_every_kind_has_signs_and_a_threshold() -> None:
    """Every kind of incident has signs that are counted and a threshold."""
    assert set(SIGNS.values()) == set(INCIDENTS)
    assert {f"incident_{kind}" for kind in INCIDENTS} <= set(Settings.model_fields)


async def test_below_and_above(operators: Database, few: Settings, logs: io.BytesIO) -> None:
    """Two signs raise nothing, the third adds one row and one log line; then the count grows."""
    raised: list[str] = []
    worker = Traffic(Watch(few, raised.append))
    tenant_id = await tenant(operators)
    add_signs(worker, tenant_id, 1, ("auth", "invalid_token"))
    add_signs(worker, tenant_id, 1, ("auth", "invalid_claims"))
    add_signs(worker, tenant_id, 50, ("auth", "token_expired"))
    add_signs(worker, tenant_id, 50, ("session", "created"))
    await worker.flush(operators)
    assert await list_incidents(operators) == []
    add_signs(worker, tenant_id, 1, ("auth", "invalid_token"))
    await worker.flush(operators)
    assert await list_incidents(operators) == [("token_failures", 3)]
    for _ in range(3):
        add_signs(worker, tenant_id, 10, ("auth", "invalid_token"))
        await worker.flush(operators)
        await worker.flush(operators)
    assert await list_incidents(operators) == [("token_failures", 33)]
    row = await operators.one("select details, created_at, started_at from incidents")
    assert row is not None
    assert row["details"] == {"invalid_token": 32, "invalid_claims": 1}
    assert row["started_at"] <= row["created_at"] < row["started_at"] + timedelta(hours=1)
    (line,) = read_incidents(logs)
    assert (line["kind"], line["count"], line["tenant_id"]) == ("token_failures", 3, tenant_id)
    assert set(line) == {"time", "level", "event", "kind", "count", "tenant_id"}
    assert raised == ["token_failures"]


async def test_workers_raise_it_once(operators: Database, few: Settings, logs: io.BytesIO) -> None:
    """Signs of several workers add up: one row, one log line, every sign counted."""
    raised: list[str] = []
    workers = [Traffic(Watch(few, raised.append)) for _ in range(6)]
    ids = [await tenant(operators, f"shop-{number}") for number in range(3)]
    for _ in range(4):
        for worker in workers:
            for tenant_id in ids:
                for sign in SIGNS:
                    add_signs(worker, tenant_id, 1, sign)
        await asyncio.gather(*(worker.flush(operators) for worker in workers))
    rows = await operators.all("select tenant_id::text, kind, count from incidents")
    assert {(row["tenant_id"], row["kind"]): row["count"] for row in rows} == {
        (tenant_id, kind): 24 * list(SIGNS.values()).count(kind)
        for tenant_id in ids
        for kind in INCIDENTS
    }
    assert len(rows) == len(ids) * len(INCIDENTS)
    assert len(read_incidents(logs)) == len(raised) == len(rows)


async def test_a_count_never_shrinks(operators: Database, few: Settings) -> None:
    """A worker with an older total does not reduce the count."""
    worker = Traffic(Watch(few, lambda _: None))
    tenant_id = await tenant(operators)
    add_signs(worker, tenant_id, 5, ("auth", "invalid_token"))
    await worker.flush(operators)
    await operators.execute("update incidents set count = 90")
    add_signs(worker, tenant_id, 1, ("auth", "invalid_token"))
    await worker.flush(operators)
    assert await list_incidents(operators) == [("token_failures", 90)]


async def test_each_hour_has_its_own(operators: Database, few: Settings) -> None:
    """Signs count in the hour in which they occurred, also when they are written late."""
    worker = Traffic(Watch(few, lambda _: None))
    tenant_id = await tenant(operators)
    now = datetime.now(UTC)
    for hours, number in ((0, 2), (1, 3), (2, 5), (30, 4)):
        moment = now - timedelta(hours=hours)
        worker._owed.append((moment, tenant_id, "auth", "conversation_mismatch", number))
    await worker.flush(operators)
    rows = await operators.all("select started_at, count from incidents order by started_at")
    assert [row["count"] for row in rows] == [4, 5, 3]


async def test_signs_without_a_tenant_raise_nothing(
    operators: Database, few: Settings, logs: io.BytesIO
) -> None:
    """Signs without a tenant, or of a removed tenant, are counted and raise nothing."""
    worker = Traffic(Watch(few, lambda _: None))
    gone = await tenant(operators)
    add_signs(worker, gone, 10, ("auth", "invalid_token"))
    for _ in range(10):
        worker.count("auth", "invalid_token")
    await tenants.remove(operators, "shop")
    await worker.flush(operators)
    assert await list_incidents(operators) == []
    assert read_incidents(logs) == []


async def test_zero_switches_a_kind_off(operators: Database, database_url: str) -> None:
    """A threshold of 0 disables a kind."""
    settings = make_settings(database_url, **THRESHOLDS | {"incident_limit_hits": 0})
    worker = Traffic(Watch(settings, lambda _: None))
    tenant_id = await tenant(operators)
    add_signs(worker, tenant_id, 9, ("blocked", "rate_limited/tenant"))
    add_signs(worker, tenant_id, 9, ("auth", "origin_mismatch"))
    await worker.flush(operators)
    assert await list_incidents(operators) == [("origin_mismatches", 9)]


def test_pending_checks_are_bounded(few: Settings, database_url: str) -> None:
    """Pending checks are a few per hour, however long they wait; none if all kinds are off."""
    off = make_settings(database_url, **{f"incident_{kind}": 0 for kind in INCIDENTS})
    start = datetime(2026, 1, 1, tzinfo=UTC)
    tenant_id = str(UUID(int=7))
    for settings, most in ((few, 4), (off, 0)):
        watch = Watch(settings, lambda _: None)
        for second in range(0, 3600, 10):
            moment = start + timedelta(seconds=second)
            watch.note([(moment, tenant_id, "auth", "invalid_token", 1)])
        assert len(watch._suspects) == most


async def test_a_database_that_is_away(
    operators: Database, few: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending checks are made later, also when nothing new was counted."""
    worker = Traffic(Watch(few, lambda _: None))
    tenant_id = await tenant(operators)
    add_signs(worker, tenant_id, 5, ("auth", "invalid_token"))

    async def away(*_: Any) -> Any:
        raise Unavailable

    with monkeypatch.context() as broken:
        broken.setattr(operators, "all", away)
        with pytest.raises(Unavailable):
            await worker.flush(operators)
    assert await list_incidents(operators) == []
    await worker.flush(operators)
    assert await list_incidents(operators) == [("token_failures", 5)]


@pytest.mark.settings(**THRESHOLDS, rate_limit_messages_conversation="3/min")
async def test_real_abuse(live_server: Live, operators: Database) -> None:
    """Real requests of every kind raise an incident at the target, without visitors' data."""
    site = await make_site(live_server, operators)
    other = await make_site(live_server, operators)
    await tenants.update(operators, site.slug, {"identity_mode": "optional"})
    client, headers = live_server.client, site.headers()
    for number in range(4):
        await client.get("/widget/whoami", headers={**headers, "Origin": other.origin})
        await client.get(f"/widget/conversations/{other.conversation_id}/messages", headers=headers)
        forged = {**headers, "Authorization": f"Bearer {headers['Authorization'][7:-2]}xx"}
        path = ("/widget/messages", "/widget/session/refresh")[number % 2]
        assert (await client.post(path, headers=forged, json={"text": "x"})).status_code == 401
        identity = Server().sign("jana@example.com", site.slug)
        await client.post(
            "/widget/session", headers={"Origin": site.origin}, json={"identity": identity}
        )
    statuses = [(await site.send(f"said in anger {number}")).status_code for number in range(7)]
    assert statuses == [200] * 3 + [429] * 4
    for _ in range(5):
        await client.post("/widget/session", headers={"Origin": "https://copied.example"})
        await client.post("/widget/messages", headers={"Authorization": "Bearer x.y.z"}, json={})
    await live_server.app.state.services.traffic.flush(operators)
    rows = await operators.all("select * from incidents")
    assert {(str(row["tenant_id"]), row["kind"]): row["count"] for row in rows} == {
        (site.tenant_id, kind): 4 for kind in INCIDENTS
    }
    secrets = ("jana", "anger", "eyJ", "127.0.0.1", site.conversation_id, other.conversation_id)
    lines = live_server.events("incident")
    for secret in secrets:
        assert secret not in str([dict(row) for row in rows])
        assert secret not in str(lines)
    assert len(lines) == len(INCIDENTS)
    text = (await client.get("/metrics")).text
    for kind in INCIDENTS:
        assert f'hlas_incidents_total{{kind="{kind}"}} 1.0' in text


async def test_a_tenants_administrator_sees_its_own(
    site: Site, operators: Database, few: Settings
) -> None:
    """Edge case 37: a tenant's administrator sees no incidents of other tenants."""
    other = await make_site(site.live, operators)
    worker = Traffic(Watch(few, lambda _: None))
    for one in (site, other):
        add_signs(worker, one.tenant_id, 5, ("auth", "origin_mismatch"))
    await worker.flush(operators)
    desk = await make_desk(site.live, operators, site.slug)
    administrator = await administrators.verify(operators, desk.key)
    confined = reach(site.live.app.state.services, administrator)
    assert [one.slug for one in (await incidents.list_incidents(confined))[0]] == [site.slug]
    assert (await incidents.list_incidents(confined, tenant_id=UUID(other.tenant_id)))[0] == []
    first, following = await incidents.list_incidents(operators, limit=1)
    rest, end = await incidents.list_incidents(operators, before=following)
    assert ({one.slug for one in (*first, *rest)}, end) == ({site.slug, other.slug}, None)


async def test_incidents_are_kept(operators: Database, few: Settings) -> None:
    """Traffic is deleted after days; incidents are kept, like the audit."""
    worker = Traffic(Watch(few, lambda _: None))
    tenant_id = await tenant(operators)
    moment = datetime.now(UTC) - timedelta(days=20)
    worker._owed.append((moment, tenant_id, "auth", "origin_mismatch", 7))
    await worker.flush(operators)
    await traffic.forget(operators)
    assert await list_incidents(operators) == [("origin_mismatches", 7)]
    row = await operators.one("select count(*) as number from traffic")
    assert row is not None
    assert row["number"] == 0
