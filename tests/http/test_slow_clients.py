"""Edge case 35: slow clients."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from drafts import LOCK
from factories import Live, Site
from hlas.http import server
from raw_http import connect, exchange, request

# The contract's bounds; the interval of the sweep is added to the reading time.
CLOSED_WITHIN = 15.0


def test_contract() -> None:
    """Edge case 35: reading time and sweep interval together stay within the contract's 15 s."""
    assert server.READ_SECONDS + 2 * server.SWEEP_SECONDS < CLOSED_WITHIN


@pytest_asyncio.fixture
async def hasty(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """A tenth of the time, to keep the tests fast."""
    monkeypatch.setattr(server, "READ_SECONDS", server.READ_SECONDS / 10)
    monkeypatch.setattr(server, "SWEEP_SECONDS", server.SWEEP_SECONDS / 10)
    yield


def starts(site: Site) -> dict[str, bytes]:
    """Requests that never end; each then sends one byte at a time."""
    token = f"Authorization: Bearer {site.session['token']}"
    return {
        "silence": b"",
        "request line": b"GET /hea",
        "headers": b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: ",
        "body": request("POST", "/widget/messages", token, "Content-Length: 5000"),
        "chunks": request("POST", "/widget/messages", token, "Transfer-Encoding: chunked")
        + b"1388\r\n",
        "session body": request(
            "POST", "/widget/session", f"Origin: {site.origin}", "Content-Length: 5000"
        ),
        "unread body": request("POST", "/nothing", "Content-Length: 5000"),
        "second request": request("GET", "/health") + b"GET /hea",
    }


async def linger(live: Live, start: bytes, drip: bytes, seconds: float) -> bool:
    """Whether the server closed the connection in time."""
    reader, writer = await connect(live.url)
    writer.write(start)
    closed = asyncio.create_task(reader.read())
    try:
        async with asyncio.timeout(seconds):
            while not closed.done():
                writer.write(drip)
                await asyncio.wait([closed], timeout=0.2)
    except TimeoutError:
        return False
    except ConnectionError:
        pass  # closed as well
    finally:
        closed.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await closed
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return True


async def slow(site: Site, count: int, seconds: float) -> None:
    """Many slow clients at once, with ordinary ones beside them."""
    live = site.live
    kinds = list(starts(site).values())
    jobs = [
        asyncio.create_task(
            linger(live, kinds[number % len(kinds)], b"a" if number % len(kinds) else b"", seconds)
        )
        for number in range(count)
    ]
    sent = 0
    while not all(job.done() for job in jobs):
        assert (await site.send(f"an ordinary text {sent}")).status_code == 200
        sent += 1
        await asyncio.sleep(0.05)
    assert all([await job for job in jobs]), "a slow connection was left open"
    assert sent, "nobody else was served meanwhile"
    assert (await site.history())["paging"]["next_after"] >= min(sent, 50)


@pytest.mark.usefixtures("hasty")
async def test_slow_clients(site: Site) -> None:
    """Edge case 35: slow headers and bodies of every kind are closed; others are served."""
    await slow(site, 40, 60)
    statuses = {line["status"] for line in site.live.events("request")}
    assert not statuses & {500, 503}


@pytest.mark.soak
async def test_500_slow_clients(site: Site) -> None:
    """Edge case 35: 500 slow connections are closed within 15 s while others are served."""
    started = time.monotonic()
    await slow(site, 500, CLOSED_WITHIN)
    print(f"500 slow connections were closed within {time.monotonic() - started:.1f} s")


@pytest.mark.usefixtures("hasty")
async def test_idle_keep_alive(site: Site) -> None:
    """Edge case 35: an idle keep-alive connection is not closed as a slow one."""
    reader, writer = await connect(site.live.url)
    for _ in range(2):
        writer.write(request("GET", "/health"))
        head = await asyncio.wait_for(reader.readuntil(b'{"status":"ok"}'), 20)
        assert head.startswith(b"HTTP/1.1 200")
        await asyncio.sleep(server.READ_SECONDS + 5 * server.SWEEP_SECONDS)
    writer.close()


@pytest.mark.usefixtures("hasty")
@pytest.mark.settings(rate_limit_messages_ip="3/min")
async def test_idle(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection is closed, whether lane or framework handled its last request."""
    usual = server.KEEP_ALIVE_SECONDS
    body = b'{"text":"then nothing"}'
    token = f"Authorization: Bearer {site.session['token']}"
    message = request("POST", "/widget/messages", token, f"Content-Length: {len(body)}")
    missing = request("POST", "/nothing", f"Content-Length: {len(body)}")
    for last, status, after in (
        (request("GET", "/health"), 200, b""),
        (message + body, 200, b""),
        # Bytes after a response that are not a request do not count as activity.
        (request("GET", "/health"), 200, b"\r\n"),
        (missing, 404, body),
        (message + body, 200, b"\r\n"),
        (message + body, 200, b""),
        (message, 429, body),
    ):
        monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", usual)
        reader, writer = await connect(site.live.url)
        writer.write(last)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert head.startswith(b"HTTP/1.1 %d" % status)
        writer.write(after)
        monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0.2)
        await asyncio.wait_for(reader.read(), 20)
        assert reader.at_eof()
        writer.close()


@pytest.mark.usefixtures("hasty")
async def test_long_request(site: Site, locker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that takes longer than the keep-alive timeout is not cut off, by either."""
    monkeypatch.setattr(server, "KEEP_ALIVE_SECONDS", 0.2)
    body = b'{"text":"it takes a while"}'
    token = f"Authorization: Bearer {site.session['token']}"
    for extra in ((), ("X-Twice: 1", "X-Twice: 2")):
        length = f"Content-Length: {len(body)}"
        message = request("POST", "/widget/messages", token, length, *extra) + body
        await locker.execute(LOCK, site.conversation_id)
        reader, writer = await connect(site.live.url)
        # On a connection that was used before, with another request pipelined.
        writer.write(request("GET", "/health") + message + request("GET", "/health"))
        await asyncio.sleep(0.2 + 5 * server.SWEEP_SECONDS)
        await locker.execute("rollback")
        await locker.execute("begin")
        answers = b""
        while answers.count(b'{"status":"ok"}') != 2:
            piece = await asyncio.wait_for(reader.read(65536), 20)
            assert piece, answers
            answers += piece
        assert answers.count(b"HTTP/1.1 200") == 3
        writer.close()


@pytest.mark.settings(max_connections_ip=5)
async def test_connections_by_address(live_server: Live) -> None:
    """Edge case 49: an address with too many connections gets 429 and is disconnected; when one is
    closed, it may connect again. Each refusal is counted; the log has one line.
    """
    writers = []
    for _ in range(5):
        reader, writer = await connect(live_server.url)
        writer.write(request("GET", "/health"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writers.append(writer)
    for _ in range(3):
        answer = await exchange(live_server.url)
        assert (answer.status, answer.closed) == (429, True)
        assert answer.json["detail"] == "rate_limited"
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["x-request-id"] == answer.json["request_id"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    writers.pop().close()
    async with asyncio.timeout(20):
        status = 429
        while status == 429:
            answer = await exchange(live_server.url, request("GET", "/health", "Connection: close"))
            status = answer.status
    assert status == 200
    for writer in writers:
        writer.close()
    assert len(live_server.events("connections_refused")) == 1
    metrics = live_server.app.state.services.metrics
    metrics.hand_over()
    labels = {"reason": "rate_limited", "scope": "ip", "route": "connection"}
    assert metrics.registry.get_sample_value("hlas_blocked_total", labels) >= 3


@pytest.mark.settings(max_connections_ip=1, trusted_proxies="127.0.0.1")
async def test_connections_of_a_proxy(live_server: Live) -> None:
    """A trusted proxy may open any number of connections."""
    opened = [await connect(live_server.url) for _ in range(20)]
    for reader, writer in opened:
        writer.write(request("GET", "/health"))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    for _, writer in opened:
        writer.close()
