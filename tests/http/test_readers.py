"""Edge case 49: clients that send requests and do not read the responses."""

import asyncio
import os
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from factories import Live, Site
from hlas.http import server, transport
from hlas.http.server import Connection
from lane import raw, wait_until
from raw_http import request

# The contract's bound; the interval of the sweep is added.
CLOSED_WITHIN = 30.0
# uvloop's high-water mark: above it no further request is started.
HIGH_WATER = 65536
SCRIPT = request("GET", "/widget.js")


def test_contract() -> None:
    """Edge case 49: reading time and sweep interval together stay within the contract's 30 s."""
    assert transport.UNREAD_SECONDS + 2 * server.SWEEP_SECONDS < CLOSED_WITHIN


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Connections since the start of the test, each with a small kernel buffer."""
    seen: list[Connection] = []
    connection_made = Connection.connection_made

    def watched(self: Connection, made: asyncio.Transport) -> None:
        connection_made(self, made)
        seen.append(self)
        number = made.get_extra_info("socket").fileno()
        with socket.socket(fileno=os.dup(number)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)

    monkeypatch.setattr(Connection, "connection_made", watched)
    return seen


@pytest_asyncio.fixture
async def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fortieth of the time, to keep the tests fast."""
    monkeypatch.setattr(transport, "UNREAD_SECONDS", transport.UNREAD_SECONDS / 40)
    monkeypatch.setattr(server, "SWEEP_SECONDS", server.SWEEP_SECONDS / 20)


async def dial(live: Live, sent: bytes, room: int = 4096) -> socket.socket:
    """Connect with a small receive buffer, and send."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    client.setblocking(False)  # noqa: FBT003  # its signature
    loop, parts = asyncio.get_running_loop(), urlsplit(live.url)
    await loop.sock_connect(client, (parts.hostname, parts.port))
    await loop.sock_sendall(client, sent)
    return client


async def receive_all(client: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(30):
            while piece := await asyncio.get_running_loop().sock_recv(client, 65536):
                received += piece
    return received


def is_gone(connection: Connection) -> bool:
    return connection not in connection.connections


@pytest.mark.usefixtures("hasty")
async def test_never_reading(site: Site, opened: list[Connection]) -> None:
    """Edge case 49: a client that never reads is disconnected, also when it is closing anyway."""
    await site.send("x", metadata={"large": "y" * 4000})
    path = f"/widget/conversations/{site.conversation_id}/messages"
    history = request("GET", path, f"Authorization: Bearer {site.session['token']}")
    closing = request("GET", "/widget.js", "Connection: close")
    opened.clear()
    clients = [
        await dial(site.live, sent)
        for sent in (
            closing,
            SCRIPT * 60,
            SCRIPT * 2 + closing,
            history * 60,
            SCRIPT * 10 + raw(site, "behind others", "1"),
            SCRIPT * 10 + b"rubbish\x00\r\n\r\n",
            SCRIPT * 10 + b"POST /widget/messages HTTP/1.1\r\nHost: a\r\nContent-Le",
            SCRIPT.replace(b"HTTP/1.1", b"HTTP/1.0"),
        )
    ]
    await wait_until(lambda: len(opened) == 8 and all(map(is_gone, opened)))
    for client in clients:
        client.close()
    assert (await site.send("others are served")).status_code == 200
    contents = [message["content"] for message in (await site.history())["messages"]]
    assert contents == ["x", "others are served"]


@pytest.mark.usefixtures("hasty")
async def test_300_clients_that_do_not_read(
    site: Site, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 49: their memory is bounded, others are served, and they are disconnected."""
    look_at_clock, unread = Connection.look_at_clock, [0]

    def watched(self: Connection, now: float) -> None:
        unread.append(self.transport._transport.get_write_buffer_size())
        look_at_clock(self, now)

    monkeypatch.setattr(Connection, "look_at_clock", watched)
    size = len((await site.live.client.get("/widget.js")).content) + 2000
    opened.clear()
    clients = await asyncio.gather(*(dial(site.live, SCRIPT * 60) for _ in range(300)))
    served = 0
    async with asyncio.timeout(60):
        while len(opened) < 300 or not all(map(is_gone, opened)) or not served:
            assert (await site.send(f"message {served}")).status_code == 200
            served += 1
    for client in clients:
        client.close()
    assert 0 < max(unread) <= HIGH_WATER + size
    answered = [line for line in site.live.events("request") if line["route"] == "/widget.js"]
    enough = HIGH_WATER // size + 3
    assert len(answered) <= 1 + 300 * enough, "answers were made that nobody had room for"


async def test_rate(site: Site, opened: list[Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 49: a byte now and then is too slow; a slow but steady reader is not cut off."""
    # From here on the test advances the clock.
    monkeypatch.setattr(server, "SWEEP_SECONDS", 1000.0)
    await asyncio.sleep(1.1)
    loop = asyncio.get_running_loop()
    for bytes_a_second, is_kept in ((1, False), (16 * 1024, True)):
        opened.clear()
        client = await dial(site.live, SCRIPT * 60, room=HIGH_WATER)
        await wait_until(lambda: bool(opened) and opened[0].flow.write_paused)
        started, seconds = loop.time(), 0
        while seconds < 60 and not is_gone(opened[0]):
            opened[0].look_at_clock(started + seconds)
            wanted = bytes_a_second
            while wanted and not opened[0].transport._transport.is_closing():
                wanted -= len(await loop.sock_recv(client, wanted))
            await asyncio.sleep(0)
            seconds += 1
        client.close()
        if is_kept:
            assert seconds == 60, "an honest client was cut off"
        else:
            assert transport.UNREAD_SECONDS <= seconds < CLOSED_WITHIN


@pytest.mark.usefixtures("hasty")
async def test_late_but_reading(site: Site, opened: list[Connection]) -> None:
    """A client that reads late gets all responses in order, and the last one at the end."""
    message = raw(site, "between", "1")
    sent = SCRIPT * 20 + message + SCRIPT * 20 + request("GET", "/health") + b"rubbish\x00\r\n\r\n"
    opened.clear()
    client = await dial(site.live, sent)
    await wait_until(lambda: bool(opened) and opened[0]._waits_for_reader)
    received = await receive_all(client)
    client.close()
    statuses = [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]+)", received)]
    assert statuses == [200] * 42 + [400]
    assert received.count(b'"message_id"') == 1
    assert received.index(b'"message_id"') < received.index(b'{"status":"ok"}')
    assert [one["content"] for one in (await site.history())["messages"]] == ["between"]
