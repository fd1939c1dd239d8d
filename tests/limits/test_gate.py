"""Which limits apply to which request, and the response of a refused one."""

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from factories import Live, Site, make_site, serve_app
from hlas.app import create_app
from hlas.http import server as http_server
from hlas.http.gate import MESSAGES, OVERRIDES_SECONDS
from hlas.http.request import Request
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants


def read_metric(live: Live, name: str, **labels: str) -> float:
    metrics = live.app.state.services.metrics
    metrics.hand_over()
    return float(metrics.registry.get_sample_value(name, labels) or 0)


class Watch:
    """Records every statement that the service sends."""

    def __init__(self, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[str] = []
        services = live.app.state.services
        run = Database._run

        async def watched(database: Database, call: Any) -> Any:
            if database is services.database:
                self.seen.append("query")
            return await run(database, call)

        async def written(*_: Any) -> Any:
            self.seen.append("write")
            raise AssertionError("nothing may be written")

        monkeypatch.setattr(Database, "_run", watched)
        monkeypatch.setattr(services.writer, "write", written)


@pytest.mark.settings(rate_limit_session_ip="3/min")
async def test_session_by_address(
    live_server: Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge cases 21, 24, 30: N pass; N+1 is a readable 429 that runs no SQL."""
    site = await make_site(live_server, operators)
    await site.open()
    await site.open()
    watch = Watch(live_server, monkeypatch)
    live_server.app.state.services.origins._clock = lambda: 1e12
    answer = await live_server.client.post("/widget/session", headers={"Origin": site.origin})
    assert (answer.status_code, answer.json()["detail"]) == (429, "rate_limited")
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["ratelimit-policy"] == '"ip";q=3;w=60'
    assert answer.headers["ratelimit"].startswith('"ip";r=0;t=')
    assert answer.headers["access-control-allow-origin"] == site.origin
    assert "retry-after" in answer.headers["access-control-expose-headers"].lower()
    assert watch.seen == []
    (blocked,) = live_server.events("blocked")
    assert (blocked["reason"], blocked["scope"]) == ("rate_limited", "ip")
    assert blocked["route"] == "/widget/session"
    assert blocked["request_id"] == answer.headers["x-request-id"]
    labels = {"reason": "rate_limited", "scope": "ip", "route": "/widget/session"}
    assert read_metric(live_server, "hlas_blocked_total", **labels) == 1


@pytest.mark.settings(rate_limit_messages_ip="2/min")
async def test_messages_by_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 24: a message refused by its address runs no SQL and reads no body."""
    for _ in range(2):
        assert (await site.send("within the limit")).status_code == 200
    watch = Watch(site.live, monkeypatch)
    for content in (b'{"text":"over the limit"}', b"rubbish", b""):
        answer = await site.live.client.post(
            "/widget/messages", headers=site.headers(), content=content
        )
        assert answer.status_code == 429
        assert answer.headers["access-control-allow-origin"] == site.origin
    assert watch.seen == []


@pytest.mark.settings(rate_limit_messages_conversation="2/min", rate_limit_messages_ip="5/min")
async def test_all_or_nothing(site: Site) -> None:
    """Edge case 23: a message refused by its conversation's limit consumes no other limit."""
    statuses = [(await site.send(f"message {number}")).status_code for number in range(10)]
    assert statuses == [200, 200] + [429] * 8
    scopes = {line["scope"] for line in site.live.events("blocked")}
    assert scopes == {"conversation"}
    await site.open()
    statuses = [(await site.send(f"message {number}")).status_code for number in range(2)]
    assert statuses == [200, 200]
    await site.open()
    statuses = [(await site.send(f"message {number}")).status_code for number in range(2)]
    assert statuses == [200, 429], "the address had one left"
    assert site.live.events("blocked")[-1]["scope"] == "ip"


@pytest.mark.settings(rate_limit_messages_tenant="3/min", rate_limit_session_tenant="4/min")
async def test_tenant(site: Site, operators: Database) -> None:
    """Edge case 23: each tenant has its own limit, and its figures are not disclosed."""
    for number in range(3):
        assert (await site.send(f"message {number}")).status_code == 200
    answer = await site.send("one too many")
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert not [name for name in answer.headers if name.startswith("ratelimit")]
    (blocked,) = site.live.events("blocked")
    assert (blocked["scope"], blocked["tenant_id"]) == ("tenant", site.tenant_id)
    assert blocked["conversation_id"] == site.conversation_id
    other = await make_site(site.live, operators)
    assert (await other.send("another tenant")).status_code == 200
    for _ in range(3):
        await site.open()
    headers = {"Origin": site.origin}
    assert (await site.live.client.post("/widget/session", headers=headers)).status_code == 429


@pytest.mark.settings(rate_limit_session_ip="4/min", rate_limit_session_tenant="100/min")
async def test_requests_without_a_tenant_consume_the_address_limit(
    live_server: Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 23: a request without a tenant consumes only the limit of its address."""
    site = await make_site(live_server, operators)
    limiter = live_server.app.state.services.limiter
    consume, scopes = limiter.consume, []

    async def watched(checks: Any) -> Any:
        scopes.append([rule.scope for rule, _ in checks])
        return await consume(checks)

    monkeypatch.setattr(limiter, "consume", watched)
    for origin in ("https://unknown.example", "null", "https://other.example"):
        answer = await live_server.client.post("/widget/session", headers={"Origin": origin})
        assert answer.status_code in {400, 403}
    answer = await live_server.client.post("/widget/session", headers={"Origin": site.origin})
    assert answer.status_code == 429
    assert scopes == [["ip"]] * 3, "an unknown tenant made a bucket"


@pytest.mark.settings(rate_limit_messages_ip="3/min")
async def test_bad_tokens_count(site: Site) -> None:
    """Edge case 23: an invalid token consumes the address's limit, so guessing is limited."""
    headers = {**site.headers(), "Authorization": "Bearer rubbish"}
    answers = [
        await site.live.client.post("/widget/messages", headers=headers, json={"text": "x"})
        for _ in range(4)
    ]
    assert [answer.status_code for answer in answers] == [401, 401, 401, 429]


@pytest.mark.settings(rate_limit_session_ip="1/min", rate_limit_messages_ip="1/min")
async def test_free_requests(live_server: Live, operators: Database) -> None:
    """Edge case 30: preflights, reads and other routes are not counted."""
    site = await make_site(live_server, operators)
    preflight = {"Origin": site.origin, "Access-Control-Request-Method": "POST"}
    for _ in range(5):
        for path in ("/widget/session", "/widget/messages"):
            answer = await live_server.client.options(path, headers=preflight)
            assert answer.status_code == 204
        whoami = await live_server.client.get("/widget/whoami", headers=site.headers())
        assert whoami.status_code == 200
        assert (await live_server.client.get("/health")).status_code == 200
    assert (await site.send("the first one")).status_code == 200
    assert (await site.send("the second one")).status_code == 429


@pytest.mark.settings(
    rate_limit_messages_ip="1/min",
    rate_limit_messages_conversation="1/min",
    rate_limit_enforce=False,
)
async def test_dry_run(site: Site) -> None:
    """A dry run blocks nothing; what it would have blocked is logged and counted once."""
    for number in range(3):
        assert (await site.send(f"message {number}")).status_code == 200
    blocked = site.live.events("blocked")
    assert [(line["reason"], line["enforced"]) for line in blocked] == [("rate_limited", False)] * 2
    total = sum(
        read_metric(
            site.live,
            "hlas_blocked_total",
            reason="rate_limited_dry_run",
            scope=scope,
            route="/widget/messages",
        )
        for scope in ("ip", "conversation")
    )
    assert total == 2


@pytest.mark.settings(rate_limit_messages_tenant="1/min")
async def test_overrides(site: Site, operators: Database) -> None:
    """A tenant's own limits apply within seconds, without a restart; invalid ones are ignored."""
    gate = site.live.app.state.services.gate
    assert OVERRIDES_SECONDS <= 5

    async def override(limits: dict[str, Any]) -> None:
        await operators.execute(
            "update tenants set limits = $2 where id = $1::text::uuid", site.tenant_id, limits
        )
        await gate.load_overrides(operators)

    assert (await site.send("the first")).status_code == 200
    assert (await site.send("the second")).status_code == 429
    await override({"messages_tenant": "3/min"})
    statuses = [(await site.send(f"message {number}")).status_code for number in range(3)]
    assert statuses == [200, 200, 429]
    await override({"messages_tenant": "nonsense", "messages_ip": "1/min", "else": 5})
    assert (await site.send("the default again")).status_code == 429
    await override({"messages_tenant": "off"})
    assert (await site.send("no limit")).status_code == 200


@pytest.mark.settings(rate_limit_messages_tenant="1/min")
async def test_overrides_are_followed(site: Site, operators: Database) -> None:
    """The running service picks up an override from the database automatically."""
    assert (await site.send("the first")).status_code == 200
    await operators.execute(
        'update tenants set limits = \'{"messages_tenant": "off"}\' where slug = $1', site.slug
    )
    async with asyncio.timeout(30):
        while (await site.send("again")).status_code == 429:  # noqa: ASYNC110  # polls the service
            await asyncio.sleep(0.1)


@pytest.mark.settings(rate_limit_messages_ip="2/min")
async def test_spoofed_address(site: Site) -> None:
    """Edge case 25: an untrusted X-Forwarded-For changes nothing; a warning is logged once."""
    statuses = []
    for number in range(4):
        headers = {**site.headers(), "X-Forwarded-For": f"203.0.113.{number}"}
        answer = await site.live.client.post(
            "/widget/messages", headers=headers, json={"text": "spoofed"}
        )
        statuses.append(answer.status_code)
    assert statuses == [200, 200, 429, 429]
    assert len(site.live.events("forwarded_for_untrusted")) == 1
    assert "203.0.113" not in str(site.live.events())


async def test_addresses_are_remembered_within_bounds(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-Forwarded-For of any length and number uses bounded memory."""
    gate = site.live.app.state.services.gate
    monkeypatch.setattr("hlas.http.gate.REMEMBERED_ADDRESSES", 50)
    for number in range(120):
        for forwarded in (
            [str(number)],
            [str(number), *[""] * 1000],
            [f"{number} {'x' * 5000}"],
        ):
            headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
            request = Request("POST", MESSAGES, b"", headers, "192.0.2.1", "http")
            assert gate.find_address(request) == "192.0.2.1"
    assert len(gate._addresses) <= 50
    assert sys.getsizeof(str(gate._addresses)) < 50 * 300


@pytest.mark.settings(rate_limit_messages_ip="2/min", trusted_proxies="127.0.0.0/8,10.0.0.0/8")
async def test_trusted_proxy(site: Site) -> None:
    """Edge cases 25, 26: behind trusted proxies the right-most untrusted address counts."""

    async def send(*forwarded: str) -> int:
        headers = [
            *site.headers().items(),
            *(("X-Forwarded-For", value) for value in forwarded),
        ]
        answer = await site.live.client.post(
            "/widget/messages", headers=headers, json={"text": "through a proxy"}
        )
        return answer.status_code

    assert [await send("203.0.113.1") for _ in range(3)] == [200, 200, 429]
    assert await send("198.51.100.9, 203.0.113.1") == 429, "the client chose its own bucket"
    assert await send("203.0.113.1, 10.1.2.3") == 429
    assert await send("198.51.100.9", "203.0.113.1, 10.1.2.3") == 429
    assert await send("::ffff:203.0.113.1") == 429
    assert await send("203.0.113.2") == 200
    assert await send("2001:db8::1") == 200
    assert await send("2001:db8::2, 10.0.0.1") == 200
    assert await send("2001:db8::3") == 429
    assert site.live.events("forwarded_for_untrusted") == []


@pytest.mark.settings(rate_limit_session_ip="1/min", rate_limit_session_tenant="3/min")
async def test_unix_socket(
    settings: Settings, logs: io.BytesIO, operators: Database, tmp_path: Path
) -> None:
    """Edge case 26: without an address only the other limits apply; this is logged once."""
    await tenants.add(operators, "Shop", "shop", ["shop.example"])
    path = str(tmp_path / "hlas.sock")
    server = uvicorn.Server(http_server.config(create_app(settings), uds=path))
    server.config.load()
    task = asyncio.create_task(server._serve())
    while not server.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    transport = httpx.AsyncHTTPTransport(uds=path)
    async with httpx.AsyncClient(transport=transport, base_url="http://hlas") as client:
        statuses = [
            (await client.post("/widget/session", headers={"Origin": "https://shop.example"}))
            for _ in range(4)
        ]
    server.should_exit = True
    await task
    assert [answer.status_code for answer in statuses] == [200, 200, 200, 429]
    assert logs.getvalue().count(b"client_address_unknown") == 1


@pytest.fixture
async def two_apps(settings: Settings, logs: io.BytesIO) -> AsyncIterator[tuple[Live, Live]]:
    async with serve_app(settings, logs) as first, serve_app(settings, logs) as second:
        yield first, second


@pytest.mark.settings(rate_limit_session_tenant="2/min")
async def test_processes_count_alone(two_apps: tuple[Live, Live], operators: Database) -> None:
    """Without Redis each process counts alone, as documented for several workers."""
    first, second = two_apps
    site = await make_site(first, operators)
    await site.open()
    headers = {"Origin": site.origin}
    assert (await first.client.post("/widget/session", headers=headers)).status_code == 429
    assert (await second.client.post("/widget/session", headers=headers)).status_code == 200
