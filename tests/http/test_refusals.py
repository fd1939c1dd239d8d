"""An address over its limit is refused by headers alone, in order, by lane and framework alike."""

import asyncio
import re
from contextlib import suppress

import pytest

from factories import Site, make_site
from hlas.http.lane import Exchange
from hlas.http.server import HOLD_BACK_SECONDS, Connection
from hlas.store.db import Database
from lane import raw, read_answers, read_log, send, shape, wait_until
from raw_http import connect, request


@pytest.mark.settings(rate_limit_messages_ip="2/min")
async def test_refused_by_address(site: Site, taken: list[bool]) -> None:
    """Both refuse an address over its limit equally, and pause reading its connection."""
    for _ in range(2):
        assert (await send(site, ordinary=True)).status_code == 200
    clock = asyncio.get_running_loop().time
    started = clock()
    express = await send(site, ordinary=False)
    again = await send(site, ordinary=False)
    assert clock() - started >= HOLD_BACK_SECONDS, "the second went over the same connection"
    ordinary = await send(site, ordinary=True)
    assert taken == [False, False, True, True, False]
    assert shape(express) == shape(again) == shape(ordinary)
    assert read_log(site, express) == read_log(site, again) == read_log(site, ordinary)
    assert express.status_code == 429


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_refused_by_its_headers(site: Site, connections: list[Connection]) -> None:
    """An address over its limit is refused before it sends its body; nothing of it is kept."""
    assert (await site.send()).status_code == 200
    connections.clear()
    reader, writer = await connect(site.live.url)
    whole = raw(site, "not looked at", "1")
    head, _, body = whole.partition(b"\r\n\r\n")
    writer.write(head + b"\r\n\r\n")
    answers = await read_answers(reader, 1)
    writer.write(body[:5])
    await wait_until(lambda: connections[0].flow.read_paused is False)
    writer.write(body[5:] + whole)
    answers += await read_answers(reader, 1)
    assert [answer["detail"] for answer in answers] == ["rate_limited"] * 2
    assert connections[0]._exchange is None
    writer.close()


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_refused_and_gone(site: Site) -> None:
    """If the client disconnects before the refusal is sent, it is still logged, once."""
    assert (await site.send()).status_code == 200
    whole = raw(site, "and gone", "1")
    for sent in (whole, whole[:-5]):
        _, writer = await connect(site.live.url)
        writer.write(sent)
        await writer.drain()
        writer.transport.abort()

    def refused() -> list[int]:
        return [line["status"] for line in site.live.events("request") if line["status"] != 200]

    await wait_until(lambda: len(refused()) == 2)
    assert (await site.live.client.get("/health")).status_code == 200
    assert refused() == [429, 429]
    assert len(site.live.events("blocked")) == 2


@pytest.mark.settings(trusted_proxies="127.0.0.1/32", rate_limit_messages_ip="1/min")
async def test_refused_in_their_order(site: Site) -> None:
    """A refusal is sent at the end of its event loop turn, before responses to later requests."""
    assert (await site.send()).status_code == 200
    reader, writer = await connect(site.live.url)
    refused, other = raw(site, "refused", "1"), {"X-Forwarded-For": "203.0.113.5"}
    health = request("GET", "/health")
    writer.write(refused + raw(site, "stored", "2", **other) + refused + health + refused)
    answers = await read_answers(reader, 5)
    writer.close()
    said = [answer.get("detail", answer.get("status", "stored")) for answer in answers]
    assert said == ["rate_limited", "stored", "rate_limited", "ok", "rate_limited"]


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_shutdown_before_a_refusal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is closed in the meantime is closed after its response."""
    assert (await site.send()).status_code == 200
    start = Exchange.start

    def shut_down_and_start(self: Exchange) -> None:
        self._connection.shutdown()  # type: ignore[attr-defined]  # the real one has it
        start(self)

    monkeypatch.setattr(Exchange, "start", shut_down_and_start)
    reader, writer = await connect(site.live.url)
    writer.write(raw(site, "refused", "1"))
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 429 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_a_flood_in_one_packet(site: Site, taken: list[bool]) -> None:
    """Of refused requests that arrive together the first is answered at once, and few wait."""
    assert (await site.send()).status_code == 200
    reader, writer = await connect(site.live.url)
    writer.write(raw(site, "over the limit", "1") * 40)
    answers = await read_answers(reader, 40)
    assert {answer["detail"] for answer in answers} == {"rate_limited"}
    assert taken == [True, True, *[False] * 39], "one that was stored, the first of the flood"
    writer.write(raw(site, "over the limit", "1") * 1000)
    async with asyncio.timeout(20):
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
    writer.close()
    assert (await site.live.client.get("/health")).status_code == 200


@pytest.mark.settings(trusted_proxies="127.0.0.1/32", rate_limit_messages_ip="1/min")
async def test_a_proxy_is_not_held_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trusted proxy's connection is not paused, because it is shared by many visitors."""
    held: list[Connection] = []
    monkeypatch.setattr(Connection, "hold_back", held.append)
    statuses = [
        (await send(site, ordinary=False, X_Forwarded_For="203.0.113.5")).status_code
        for _ in range(3)
    ]
    assert (statuses, held) == ([200, 429, 429], [])


def add_headers(whole: bytes, *lines: str) -> bytes:
    """The same request with more headers; a repeated header disables the fast path."""
    first, _, rest = whole.partition(b"\r\n")
    return first + b"\r\n" + "".join(f"{line}\r\n" for line in lines).encode() + rest


async def first_head(site: Site, sent: bytes) -> bytes:
    reader, writer = await connect(site.live.url)
    writer.write(sent)
    async with asyncio.timeout(20):
        head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head.lower()


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_refused_by_its_own_headers(site: Site, operators: Database) -> None:
    """Headers of the next request in the same packet do not affect this one."""
    assert (await site.send()).status_code == 200
    whole, readable = raw(site, "refused", "1"), b"access-control-allow-origin: "
    twice = add_headers(whole, "Origin: https://evil.example")
    assert readable not in await first_head(site, twice + whole)
    other = await make_site(site.live, operators)
    own = add_headers(whole, "X-Twice: 1", "X-Twice: 2")
    assert readable + site.origin.encode() in await first_head(site, own + raw(other, "b", "2"))


@pytest.mark.settings(trusted_proxies="127.0.0.1/32", rate_limit_messages_ip="1/min")
async def test_refused_over_its_own_protocol(site: Site) -> None:
    """The same behind a proxy that terminates TLS."""
    assert (await site.send()).status_code == 200
    whole = raw(site, "refused", "1")
    own = add_headers(whole, "Via: a", "Via: b")
    secure = add_headers(whole, "X-Forwarded-Proto: https")
    assert b"strict-transport-security" not in await first_head(site, own + secure)
    own = add_headers(secure, "Via: a", "Via: b")
    assert b"strict-transport-security" in await first_head(site, own + whole)


@pytest.mark.settings(rate_limit_messages_ip="2/min")
@pytest.mark.parametrize("used", [1, 2])
async def test_warning_has_the_request_id(site: Site, used: int) -> None:
    """A warning about a request has its request id, whether it is refused or stored."""
    for _ in range(used):
        assert (await site.send()).status_code == 200
    answer = await send(site, ordinary=False, X_Forwarded_For="203.0.113.9")
    (line,) = site.live.events("forwarded_for_untrusted")
    assert line["request_id"] == answer.headers["x-request-id"]


@pytest.mark.settings(rate_limit_messages_ip="1/min")
async def test_garbage_behind(site: Site) -> None:
    """Garbage behind a request is refused after that request's response, not instead of it.

    In the body of a request that is already refused it gets no response of its own.
    """
    chunks = {"Transfer-Encoding": "chunked"}
    for body, statuses in (({}, [200, 400]), ({}, [429, 400]), (chunks, [429])):
        whole = raw(site, "whole", "1", **body)
        if body:
            whole = whole.replace(b"\r\nContent-Length: ", b"\r\nX-Length: ")
        reader, writer = await connect(site.live.url)
        writer.write(whole + b"GARBAGE\x00\r\n\r\n")
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()
        said = [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]+)", answer)]
        assert said == statuses, body
    assert len((await site.history())["messages"]) == 1
