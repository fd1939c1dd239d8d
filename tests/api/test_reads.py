"""Reads without an administrator's key are limited by address and bounded in size.

Fails with no limit on reads, pages of 100 messages whatever their size, and metrics and
readiness computed for each request.
"""

import asyncio
import io
import threading
from typing import Any

import orjson
import pytest
import uuid_utils
from fastapi.routing import iter_route_contexts

from factories import Live, Site, make_site, serve_app
from hlas import payloads
from hlas.api import widget
from hlas.api.admin.access import require_administrator
from hlas.api.console.access import require_signed_in
from hlas.api.reads import limit_reads
from hlas.background import TASKS
from hlas.conversations import messages
from hlas.http.gate import MESSAGES, REPLIES, SESSION
from hlas.observe.metrics import Metrics
from hlas.settings import Settings
from hlas.store.db import Database

HISTORY = "/widget/conversations/{conversation_id}/messages"
STREAM = "/widget/conversations/{conversation_id}/stream"
STOP = "/widget/conversations/{conversation_id}/stop"
AGENT = "/widget/agent/reply"
PEOPLE = {
    "/widget/conversations/{conversation_id}/person",
    "/widget/conversations/{conversation_id}/contact",
    "/widget/messages/{message_id}/rating",
}
ROUTES = [
    ("GET", "/widget/whoami", 200),
    ("GET", HISTORY, 200),
    ("GET", STREAM, 422),
    ("POST", "/widget/session/refresh", 200),
    ("GET", "/metrics", 200),
    ("GET", "/docs", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/console/sign-in", 200),
    ("GET", "/console/preview", 200),
]
# Served from memory, and used by load balancers; /ready is checked at most once a second.
FREE = {"/", "/health", "/ready", "/widget.js", "/widget/{version}/widget.js"}
FREE |= {f"/demo{rest}" for rest in ("", "/cs", "/en", "/demo.css", "/demo.js", "/icon.svg")}


class Statements:
    """Every statement that any part of the service sends, but for background work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operators: Database) -> None:
        self.sent = 0
        run = Database._run

        async def counted(database: Database, call: Any) -> Any:
            task = asyncio.current_task()
            is_background = task is not None and task.get_name() in TASKS
            self.sent += database is not operators and not is_background
            return await run(database, call)

        monkeypatch.setattr(Database, "_run", counted)


def test_every_route_has_a_limit(live_server: Live) -> None:
    """Edge case 50: every route is limited, requires an administrator, or is listed as free."""
    free = set()
    for route in iter_route_contexts(live_server.app.routes):
        calls = {dependency.call for dependency in route.dependant.dependencies}
        if calls.isdisjoint({limit_reads, require_administrator, require_signed_in}):
            free.add(route.path)
    visitors = {route for _, route in widget.lines(live_server.app.state.services)}
    assert free == FREE | visitors
    # Each of these consumes a limit of its own, or that of reads, below.
    reads = {route for _, route, _ in ROUTES}
    assert visitors == {SESSION, MESSAGES, REPLIES, AGENT, STOP} | PEOPLE | (visitors & reads)


@pytest.mark.parametrize(("method", "route", "status"), ROUTES)
@pytest.mark.settings(rate_limit_reads_ip="3/min")
async def test_reads_by_address(
    site: Site,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    route: str,
    status: int,
) -> None:
    """Edge cases 24, 30, 50: N pass; the next is a 429 that runs no SQL, whatever its token."""
    client, path = site.live.client, route.format(conversation_id=site.conversation_id)
    # A stream would not end: this one is refused for its cursor.
    own = {**site.headers(), "Last-Event-ID": "x"}
    for _ in range(3):
        assert (await client.request(method, path, headers=own)).status_code == status
    statements = Statements(monkeypatch, operators)
    stranger = {"Origin": "https://never-seen.example", "Authorization": "Bearer rubbish"}
    refused = [await client.request(method, path, headers=site.headers())]
    refused += [await client.request(method, path, headers=stranger)]
    assert statements.sent == 0
    for answer in refused:
        assert answer.status_code == 429
        assert answer.headers["ratelimit-policy"] == '"ip";q=3;w=60'
        assert 1 <= int(answer.headers["retry-after"]) <= 60
    for_pages = path.startswith("/widget/")
    told = refused[0].headers.get("access-control-allow-origin")
    assert told == (site.origin if for_pages else None)
    blocked = site.live.events("blocked")
    assert [(line["reason"], line["scope"], line["route"]) for line in blocked] == [
        ("rate_limited", "ip", route)
    ] * 2
    if not path.startswith("/console"):
        assert refused[0].json() == {
            "detail": "rate_limited",
            "message": "Too many requests; wait for the number of seconds in Retry-After.",
            "request_id": refused[0].headers["x-request-id"],
        }


@pytest.mark.settings(rate_limit_reads_ip="2/min")
async def test_reads_share_a_limit(site: Site) -> None:
    """Edge cases 30, 50: all reads share one bucket, also with invalid tokens; others do not."""
    client = site.live.client
    bad = await client.get("/widget/whoami", headers={"Authorization": "Bearer rubbish"})
    assert bad.status_code == 401
    assert (await client.get("/metrics")).status_code == 200
    assert (await client.get("/widget/whoami", headers=site.headers())).status_code == 429
    preflight = {"Origin": site.origin, "Access-Control-Request-Method": "GET"}
    for path in ("/widget/whoami", HISTORY.format(conversation_id=site.conversation_id)):
        assert (await client.options(path, headers=preflight)).status_code == 204
    for path in ("/health", "/ready", "/widget.js", "/demo/en"):
        assert (await client.get(path)).status_code == 200
    assert (await site.send("a message has limits of its own")).status_code == 200
    await site.open()


@pytest.mark.settings(rate_limit_reads_ip="2/min", trusted_proxies="127.0.0.0/8")
async def test_reads_through_a_proxy(site: Site) -> None:
    """Edge cases 25, 50: behind a trusted proxy each visitor has a bucket of their own."""

    async def read(address: str) -> int:
        headers = {**site.headers(), "X-Forwarded-For": address}
        return (await site.live.client.get("/widget/whoami", headers=headers)).status_code

    assert [await read("203.0.113.1") for _ in range(3)] == [200, 200, 429]
    assert await read("203.0.113.2") == 200


@pytest.mark.settings(rate_limit_reads_ip="1/min", rate_limit_enforce=False)
async def test_reads_in_a_dry_run(site: Site) -> None:
    """A dry run blocks no read, and logs each read that it would have blocked."""
    for _ in range(3):
        answer = await site.live.client.get("/widget/whoami", headers=site.headers())
        assert answer.status_code == 200
    blocked = site.live.events("blocked")
    assert [(line["route"], line["enforced"]) for line in blocked] == [
        ("/widget/whoami", False)
    ] * 2


async def test_what_is_refused_early_costs_no_query(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 50: a request refused before its limit is consumed runs no query."""
    statements = Statements(monkeypatch, operators)
    for number in range(5):
        headers = {"Origin": f"https://stranger-{number}.example"}
        assert (await site.live.client.get("/nothing", headers=headers)).status_code == 404
        assert (await site.live.client.get("/widget/session", headers=headers)).status_code == 405
        headers |= {"Content-Encoding": "gzip"}
        answer = await site.live.client.post("/widget/session", headers=headers, content=b"{}")
        assert answer.status_code == 415
    assert statements.sent == 0
    known = await site.live.client.get("/nothing", headers={"Origin": site.origin})
    assert known.headers["access-control-allow-origin"] == site.origin


async def store(
    operators: Database, site: Site, contents: list[tuple[str, dict[str, Any]]]
) -> None:
    """Messages as an earlier version stored them."""
    for seq, (content, meta) in enumerate(contents, start=1):
        await operators.execute(
            "insert into messages (tenant_id, conversation_id, id, seq, role, content, meta)"
            " values ($1::text::uuid, $2::text::uuid, $3::text::uuid, $4, 'user', $5, $6)",
            site.tenant_id,
            site.conversation_id,
            str(uuid_utils.uuid7()),
            seq,
            content,
            meta,
        )
    await operators.execute(
        "update conversations set last_seq = $3 where tenant_id = $1::text::uuid"
        " and id = $2::text::uuid",
        site.tenant_id,
        site.conversation_id,
        len(contents),
    )


async def test_page_has_a_byte_cap(site: Site, operators: Database) -> None:
    """Edge case 50: a page of history is cut by bytes; following next_after misses nothing."""
    metadata = {"a": "x" * 64_000}
    await store(operators, site, [(f"m{number}", metadata) for number in range(40)])
    seen: list[str] = []
    after, more, pages = 0, True, 0
    while more:
        page = await site.history(after=after, limit=100)
        assert len(orjson.dumps(page)) < messages.PAGE_BYTES + 40 * 300
        seen += [message["content"] for message in page["messages"]]
        after, more, pages = page["paging"]["next_after"], page["paging"]["has_more"], pages + 1
    assert seen == [f"m{number}" for number in range(40)]
    assert pages == 3
    first = await site.history(limit=16)
    assert (len(first["messages"]), first["paging"]["has_more"]) == (16, True)
    by_offset = await site.history(offset=30, limit=100)
    assert [message["seq"] for message in by_offset["messages"]] == list(range(31, 41))
    assert not by_offset["paging"]["has_more"]


async def test_page_has_at_least_one_message(site: Site, operators: Database) -> None:
    """Edge case 50: a message larger than a page is a page of its own, anywhere."""
    huge = "x" * (messages.PAGE_BYTES + 1)
    await store(operators, site, [("m1", {}), (huge, {}), (huge, {}), ("m4", {})])
    sizes, after, more = [], 0, True
    while more:
        page = await site.history(after=after)
        sizes.append([len(message["content"]) for message in page["messages"]])
        after, more = page["paging"]["next_after"], page["paging"]["has_more"]
    assert sizes == [[2], [len(huge)], [len(huge)], [2]]


async def test_metadata_has_a_cap(site: Site) -> None:
    """Edge case 50: metadata of 4096 bytes of compact JSON passes; one byte more is a 422."""
    frame = len(b'{"a":""}')
    fits = {"a": "x" * (payloads.LARGEST_METADATA_BYTES - frame)}
    over = {"a": fits["a"] + "x"}
    assert (await site.send("fits", metadata=fits)).status_code == 200
    session = {"Origin": site.origin}
    opened = await site.live.client.post(
        "/widget/session", headers=session, json={"metadata": fits}
    )
    assert opened.status_code == 200
    for answer in (
        await site.send("does not fit", key="metadata-key", metadata=over),
        await site.live.client.post("/widget/session", headers=session, json={"metadata": over}),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request")
        assert answer.json()["errors"] == [
            {"loc": ["body", "metadata"], "type": "metadata_too_large"}
        ]
    assert [message["content"] for message in (await site.history())["messages"]] == ["fits"]
    assert (await site.send("fits now", key="metadata-key")).status_code == 200


async def test_metrics_are_made_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 50: metrics are rendered once a second, and not in the event loop."""
    threads: list[int] = []
    text = Metrics._text

    def watched(metrics: Metrics) -> bytes:
        threads.append(threading.get_ident())
        return text(metrics)

    monkeypatch.setattr(Metrics, "_text", watched)
    page = site.live.app.state.services.metrics.page
    page._clock = lambda: 100.0
    asked = [site.live.client.get("/metrics") for _ in range(20)]
    answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()
    page._clock = lambda: 101.0
    fresh = await site.live.client.get("/metrics")
    line = 'hlas_http_requests_total{method="GET",route="/metrics",status="200"} 20.0'
    assert line in fresh.text.splitlines()
    assert len(threads) == 2


async def test_readiness_is_asked_once(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 50: 40 calls of /ready run one statement; a second later it runs again."""
    readiness = site.live.app.state.services.readiness
    readiness._clock = lambda: 100.0
    statements = Statements(monkeypatch, operators)
    answers = await asyncio.gather(*(site.live.client.get("/ready") for _ in range(40)))
    assert {answer.status_code for answer in answers} == {200}
    assert statements.sent == 1
    readiness._clock = lambda: 101.0
    await site.live.app.state.services.database._pool.close()
    away = await site.live.client.get("/ready")
    assert (away.status_code, away.json()["detail"]) == (503, "unavailable")


async def test_no_page_reads_what_operators_read(site: Site) -> None:
    """Responses that no website needs have no CORS headers, with or without a token."""
    for path in ("/metrics", "/health", "/ready", "/docs", "/openapi.json"):
        for headers in ({"Origin": site.origin}, site.headers()):
            answer = await site.live.client.get(path, headers=headers)
            assert answer.status_code == 200
            names = [name for name in answer.headers if name.startswith("access-control-")]
            assert names == [], path
        asked = {"Origin": site.origin, "Access-Control-Request-Method": "GET"}
        assert (await site.live.client.options(path, headers=asked)).status_code == 403


@pytest.mark.settings(rate_limit_reads_ip="2/min")
async def test_another_tenants_id_costs_the_address(
    settings: Settings, logs: io.BytesIO, operators: Database
) -> None:
    """Edge cases 36, 50: requests for other tenants' conversations count like any read."""
    async with serve_app(settings, logs) as live:
        site, other = await make_site(live, operators), await make_site(live, operators)
        path = HISTORY.format(conversation_id=other.conversation_id)
        answers = [await live.client.get(path, headers=site.headers()) for _ in range(3)]
    assert [answer.json()["detail"] for answer in answers] == [
        "conversation_mismatch",
        "conversation_mismatch",
        "rate_limited",
    ]
