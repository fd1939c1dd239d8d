"""Hostile requests through real nginx, Caddy and HAProxy, with others on the same connections."""

import asyncio
import io
import itertools
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

import proxies
from administration import Desk, make_desk
from attacks import LAST
from factories import Live, Site, serve_app
from framings import make_refused
from hlas.settings import Settings
from hlas.store.db import Database
from proxies import Proxy
from raw_http import Answer, connect, exchange, request


@pytest.fixture(scope="module")
def backend() -> Iterator[int]:
    """The port of the service, the same for all tests, so that the proxy starts once."""
    with socket.socket() as held:
        # Bound but not listening: no other process gets the port between two tests.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(scope="module", params=list(proxies.COMMANDS))
def proxy(request: pytest.FixtureRequest, backend: int) -> Iterator[Proxy]:
    with proxies.run_proxy(request.param, backend) as started:
        yield started


@pytest.fixture(scope="module", params=["nginx", "caddy", "haproxy"])
def closed_proxy(request: pytest.FixtureRequest, backend: int) -> Iterator[Proxy]:
    """A proxy for which we are not on the internal network."""
    with proxies.run_proxy(request.param, backend, from_outside=True) as started:
        yield started


@pytest_asyncio.fixture
async def live_server(settings: Settings, logs: io.BytesIO, backend: int) -> AsyncIterator[Live]:
    async with serve_app(settings, logs, backend) as live:
        yield live


@pytest_asyncio.fixture
async def desk(site: Site, operators: Database) -> Desk:
    return await make_desk(site.live, operators)


UPGRADES = {
    "any token": ("Connection: Upgrade", "Upgrade: foo"),
    "websocket": ("Connection: keep-alive, Upgrade", "Upgrade: websocket"),
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "Proxy-Connection": ("Proxy-Connection: upgrade", "Upgrade: foo"),
}
# A proxy either forwards Upgrade, and Hlas refuses it, or drops it, and the body is a body.
OUTCOMES = {(400, "invalid_http"), (404, "not_found")}


async def attack(proxy: Proxy, headers: tuple[str, ...], body: bytes, *, split: bool) -> Answer:
    """A request whose body is a request, in one packet or in two."""
    reader, writer = await connect(proxy.url)
    head = request("POST", "/nothing", *headers, f"Content-Length: {len(body)}")
    if split:
        writer.write(head)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(body)
    else:
        writer.write(head + body)
    received, closed = b"", False
    try:
        while True:
            # A proxy may keep the connection open: a second response would arrive now.
            seconds = 0.1 if received else 20
            piece = await asyncio.wait_for(reader.read(65536), seconds)
            if not piece:
                closed = True
                break
            received += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return Answer(received, closed)


async def test_upgrade(proxy: Proxy, site: Site, desk: Desk) -> None:
    """Edge case 46: a body behind Upgrade is never parsed as a request, neither for the attacker
    nor with the key of an operator whose request follows on the same connection.
    """
    path = f"/admin/tenants/{site.slug}"
    smuggled = (
        f"DELETE {path} HTTP/1.1\r\nHost: a\r\nIf-Match: *\r\nX-Rest: ".encode(),
        request("DELETE", path, "If-Match: *"),
    )
    key = {"Authorization": f"Bearer {desk.key}"}
    answers: list[tuple[str, Answer]] = []
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20) as operator:
        for kind, body, split in itertools.product(UPGRADES, smuggled, (False, True)):
            answers.append((kind, await attack(proxy, UPGRADES[kind], body, split=split)))
            for _ in range(2):
                own = await operator.get(path, headers=key)
                assert own.status_code == 200, f"{kind}: the operator got another answer"
                assert own.json()["slug"] == site.slug
                assert (await operator.get("/health")).json() == {"status": "ok"}
    for kind, answer in answers:
        assert answer.raw.count(b"HTTP/1.1 ") == 1, answer.raw
        assert (answer.status, answer.json["detail"]) in OUTCOMES, kind


# Spellings of /metrics, including some that a strict service does not accept.
SPELLINGS = (
    "/metrics",
    "/metrics?x",
    "/metrics/",
    "/metrics%0a",
    "/metrics%0d",
    "/metrics%00",
    "/metrics%09",
    "/metrics%7f",
    "/metrics%c2%85",
    "/metrics%20",
    "/metrics;x",
    "/metrics#x",
    "/metrics%23x",
    "/metrics%3fx",
    "/%6detrics",
    "/%6d%65%74%72%69%63%73",
    "/%256detrics",
    "//metrics",
    "/%2fmetrics",
    "/%2e/metrics",
    "/./metrics",
    "/x/../metrics",
    "/x/%2e%2e/metrics",
    "/x%2f..%2fmetrics",
    "/health/..%2fmetrics",
    "/METRICS",
    "/Metrics",
    "/\\metrics",
    "http://hlas.test/metrics",
    "http://hlas.test/metrics%0a",
    "HTTP://hlas.test//metrics",
)


async def ask(url: str, target: str, *headers: str) -> Answer:
    reader, writer = await connect(url)
    writer.write(request("GET", target, "Connection: close", *headers))
    async with asyncio.timeout(20):
        answer = Answer(await reader.read(), closed=True)
    writer.close()
    return answer


async def test_access_rule(closed_proxy: Proxy, live_server: Live) -> None:
    """Edge case 47: the sample configurations block /metrics from outside, in every spelling."""
    assert (await live_server.client.get("/metrics")).status_code == 200
    for spelling in SPELLINGS:
        answer = await ask(closed_proxy.url, spelling)
        assert answer.status in {400, 403, 404}, (spelling, answer.raw[:200])
        assert b"hlas_" not in answer.raw, spelling


async def test_operators_come_from_inside(proxy: Proxy, desk: Desk) -> None:
    """The same rule lets operators through."""
    answer = await ask(proxy.url, "/metrics")
    assert answer.status == 200
    assert b"hlas_http_requests" in answer.raw
    answer = await ask(proxy.url, "/admin/tenants", f"Authorization: Bearer {desk.key}")
    assert answer.status == 200


# Requests that are refused without a proxy and that a proxy may forward or misread.
FRAMINGS = [
    tried for tried in make_refused() if tried.name.startswith(("chunk", "coding", "trail"))
]


async def test_framing(proxy: Proxy, site: Site, desk: Desk) -> None:
    """Edge case 46: however a body is framed, the next client gets its own response."""
    path, key = f"/admin/tenants/{site.slug}", {"Authorization": f"Bearer {desk.key}"}
    smuggled = request("DELETE", path, "If-Match: *")
    assert len(FRAMINGS) >= 60
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20) as operator:
        for tried in FRAMINGS:
            # Instead of the request that would end the connection.
            sent = b"".join(tried.packets).replace(LAST, smuggled)
            answer = await exchange(proxy.url, sent, silence=0.03)
            assert answer.status in {0, 400, 403, 415, 422, 501, 502}, (tried.name, answer.raw)
            own = await operator.get(path, headers=key)
            assert own.status_code == 200, f"{tried.name}: the operator got another answer"
            assert own.json()["slug"] == site.slug, tried.name


@pytest.mark.settings(trusted_proxies="127.0.0.1/32", rate_limit_session_ip="2/h")
async def test_trailers(proxy: Proxy, site: Site) -> None:
    """Edge case 25: X-Forwarded-For in a trailer does not replace that of the proxy."""
    origin = f"Origin: {site.origin}"
    opened = []
    for number in range(8):
        trailers = f"0\r\nX-Forwarded-For: 203.0.113.{number}\r\n\r\n".encode()
        sent = request(
            "POST", "/widget/session", origin, "Transfer-Encoding: chunked", body=trailers
        )
        opened.append((await exchange(proxy.url, sent, silence=0.05)).status)
    # HAProxy forwards trailers, and Hlas refuses them; the others drop them.
    assert opened.count(200) <= 1, opened


async def read_frames(lines: AsyncIterator[str], count: int) -> list[dict[str, Any]]:
    """The next frames of a stream that stays open."""
    frames: list[dict[str, Any]] = []
    async with asyncio.timeout(5):
        while len(frames) < count:
            line = await anext(lines)
            if line.startswith("data: "):
                frames.append(orjson.loads(line.removeprefix("data: ")))
    return frames


async def test_stream(proxy: Proxy, site: Site) -> None:
    """Each frame passes at once while the stream stays open; when the visitor leaves, it ends.

    HAProxy notices that the visitor has left when it has written again, twice.
    """
    streams = site.live.app.state.services.streams
    path = f"{proxy.url}/widget/conversations/{site.conversation_id}/stream"
    async with site.live.client.stream("GET", path, headers=site.headers()) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert "content-encoding" not in response.headers
        lines = response.aiter_lines()
        [state] = await read_frames(lines, 1)
        assert state["type"] == "data-state"
        for text in ("one", "two", "three"):
            sent = await site.live.client.post(
                f"{proxy.url}/widget/messages", headers=site.headers(), json={"text": text}
            )
            assert sent.status_code == 200
            [message] = await read_frames(lines, 1)
            assert (message["type"], message["data"]["content"]) == ("data-message", text)
        assert streams._count == 1
    async with asyncio.timeout(10):
        while streams._count:
            if proxy.name == "haproxy":
                assert (await site.send("still there?")).status_code == 200
            await asyncio.sleep(0.1)
