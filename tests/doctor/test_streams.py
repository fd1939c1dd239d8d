"""What the doctor finds about streams, each fault planted in front of a real service."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import log_scan
import proxies
from factories import Live, Site, make_settings
from hlas.doctor import checks, streams
from hlas.doctor.finding import Finding
from hlas.doctor.website import Service
from hlas.store.db import Database
from hlas.store.logins import Logins
from web_servers import raw_server

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SECONDS", 2.0)


async def check(database_url: str, url: str) -> Finding:
    return await streams.check(Logins(database_url), Service(url, log_scan.SECRET))


@asynccontextmanager
async def holding_proxy(upstream: str) -> AsyncIterator[str]:
    """Passes an answer on when it is complete, as some CDNs do."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = upstream.removeprefix("http://").split(":")
        back, forth = await asyncio.open_connection(host, int(port))
        try:
            forth.write(await reader.readuntil(b"\r\n\r\n"))
            answer = asyncio.create_task(back.read())
            left = asyncio.create_task(reader.read())
            await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                writer.write(answer.result())
            answer.cancel()
            left.cancel()
        finally:
            forth.close()
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def port_of(site: Site) -> int:
    return int(site.live.url.rpartition(":")[2])


async def wait_for_end(site: Site) -> None:
    """No stream is open any more; a proxy that is stopped waits for its streams."""
    opened = site.live.app.state.services.streams
    for _ in range(500):
        if not opened._count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a stream is left open")


async def test_healthy(site: Site, database_url: str, operators: Database) -> None:
    """The doctor sees the first frame, reads no message and leaves nothing behind."""
    await site.send("a visitor's secret")
    found = await check(database_url, site.live.url)
    assert found == Finding("stream", "ok", "a stream arrives piece by piece")
    await wait_for_end(site)
    rows = await operators.all("select id::text as id from conversations")
    assert [row["id"] for row in rows] == [site.conversation_id]


async def test_token_for_a_stranger(site: Site, database_url: str, operators: Database) -> None:
    """What is sent to a wrong address opens no visitor's conversation, and nothing afterwards."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        await check(database_url, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    [request] = heard
    assert site.conversation_id not in request.decode()
    [token] = re.findall(r"Bearer (\S+)", request.decode())
    session = site.live.app.state.services.tokens.verify(token)
    assert session.conversation_id != site.conversation_id
    headers = {"Authorization": f"Bearer {token}"}
    answer = await site.live.client.post("/widget/messages", headers=headers, json={"text": "x"})
    assert (answer.status_code, answer.json()["detail"]) == (403, "conversation_not_found")
    assert len(await operators.all("select 1 from conversations")) == 1


@pytest.mark.parametrize("name", ["nginx", "caddy", "haproxy"])
async def test_samples(site: Site, database_url: str, name: str) -> None:
    """The samples of ops/ pass."""
    with proxies.run_proxy(name, port_of(site)) as proxy:
        assert (await check(database_url, proxy.url)).status == "ok"
        if name != "haproxy":
            await wait_for_end(site)


async def test_buffering(site: Site, database_url: str) -> None:
    """A proxy that waits for the whole answer, one of ours and a real one."""
    async with holding_proxy(site.live.url) as url:
        held = await check(database_url, url)
    assert (held.status, held.fix) == ("fail", streams.UNBUFFERED)
    with proxies.run_proxy("haproxy that buffers", port_of(site)) as proxy:
        assert await check(database_url, proxy.url) == held


async def test_compression(site: Site, database_url: str) -> None:
    """A proxy that compresses whatever the browser lets it."""
    with proxies.run_proxy("nginx that compresses", port_of(site)) as proxy:
        found = await check(database_url, proxy.url)
    assert (found.status, found.fix) == ("fail", streams.UNCOMPRESSED)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (EVENTS + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b", "a proxy compresses streams (gzip)"),
        (EVENTS + b"\r\nretry: 1000\n\n", "the stream ends before its first frame"),
        (b"HTTP/1.1 504 Too Late\r\n\r\n", "a stream is answered with status 504 (text/plain)"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", "status 200 (text/html)"),
        (b"", "cannot be reached"),
    ],
)
async def test_faults(site: Site, database_url: str, answer: bytes, found: str) -> None:
    async with raw_server(answer) as url:
        seen = await check(database_url, url)
    assert seen.status == "fail"
    assert found in seen.found
    assert seen.fix


async def test_nothing_to_open(live_server: Live, database_url: str) -> None:
    """Without a tenant, a secret or an address there is nothing to check, and it says so."""
    assert "no active tenant yet" in (await check(database_url, live_server.url)).found
    logins = Logins(database_url)
    for service in (None, Service("nowhere", log_scan.SECRET), Service(live_server.url, "")):
        assert (await streams.check(logins, service)).status == "skip"
    assert (await streams.check(None, Service(live_server.url, "s"))).status == "skip"


async def test_is_part_of_the_doctor(site: Site, database_url: str) -> None:
    found = await checks.examine(make_settings(database_url), database_url, service=site.live.url)
    assert [one.status for one in found if one.name == "stream"] == ["ok"]
