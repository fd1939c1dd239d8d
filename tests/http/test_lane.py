"""The express lane and the framework respond equally; unusual requests use the framework."""

import asyncio
import gc
import io
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest
from redis import Redis

from factories import Site, make_site, serve_app
from hlas import errors
from hlas.conversations import messages
from hlas.http.answer import Answer
from hlas.http.lane import Exchange
from hlas.http.request import Request
from hlas.http.server import Connection
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from lane import raw, read_answers, read_log, send, send_both, shape, wait_until
from raw_http import connect, request
from redis_servers import run_redis


async def test_created_and_replayed(site: Site, taken: list[bool]) -> None:
    """A message is stored, and replayed with the same bytes, whichever handled it first."""
    plain = await send_both(site)
    assert plain[0].json()["message_id"] != plain[1].json()["message_id"]
    express = await send(site, ordinary=False, Idempotency_Key="express")
    ordinary = await send(site, ordinary=True, Idempotency_Key="ordinary")
    assert shape(express) == shape(ordinary)
    for first, key in ((express, "express"), (ordinary, "ordinary")):
        replays = await send_both(site, Idempotency_Key=key)
        assert {replay.content for replay in replays} == {first.content}
        assert {replay.headers["idempotent-replayed"] for replay in replays} == {"true"}
    assert taken == [True, False] * 2 + [True, False] * 2
    assert len((await site.history())["messages"]) == 4


async def test_in_production(
    settings: Settings, logs: io.BytesIO, operators: Database, taken: list[bool]
) -> None:
    """The lane handles messages also with limits in Redis and with traces."""
    with run_redis() as redis:
        variables = {
            "redis_url": redis.url,
            # Nobody listens there: spans are dropped.
            "otel_exporter_otlp_endpoint": "http://127.0.0.1:9",
        }
        async with serve_app(settings.model_copy(update=variables), logs) as live:
            site = await make_site(live, operators)
            taken.clear()
            assert (await site.send("hello")).status_code == 200
            with Redis.from_url(redis.url) as client:
                assert client.dbsize(), "no limit was consumed in Redis"
    assert taken == [True]


@pytest.mark.settings(trusted_proxies="127.0.0.1/32")
async def test_behind_a_proxy(site: Site, taken: list[bool]) -> None:
    """The same without an Origin, with a client's request id, and over a proxy's TLS."""
    headers = {"X-Request-Id": "mine.1", "X-Forwarded-Proto": "https", "X-Forwarded-For": "::1"}
    express, ordinary = await send_both(site, **headers)
    assert express.headers["x-request-id"] == ordinary.headers["x-request-id"] == "mine.1"
    assert "strict-transport-security" in express.headers
    assert taken == [True, False]


async def refuse_conflict(site: Site, _: Database) -> None:
    await send(site, ordinary=False, text="something else", Idempotency_Key="k")


async def sign_out(site: Site, operators: Database) -> None:
    await operators.execute(
        "update tenants set token_generation = token_generation + 1 where id = $1", site.tenant_id
    )


async def disable(site: Site, operators: Database) -> None:
    await tenants.set_active(operators, site.slug, active=False)


async def close(site: Site, operators: Database) -> None:
    await operators.execute(
        "update conversations set status = 'closed' where id = $1", site.conversation_id
    )


@pytest.mark.parametrize(
    ("spoil", "refused"),
    [
        (refuse_conflict, errors.IdempotencyKeyConflict),
        (sign_out, errors.SessionRevoked),
        (disable, errors.TenantInactive),
        (close, errors.ConversationClosed),
    ],
)
async def test_refused_by_the_store(
    site: Site,
    operators: Database,
    taken: list[bool],
    spoil: Callable[[Site, Database], Awaitable[None]],
    refused: type[errors.HlasError],
) -> None:
    """Refusals by the database have the same response and the same log lines."""
    await spoil(site, operators)
    answers = await send_both(site, Idempotency_Key="k")
    assert {answer.json()["detail"] for answer in answers} == {refused.code}
    assert taken[-2:] == [True, False]


async def test_date(site: Site, connections: list[Connection]) -> None:
    """The Date header of the lane changes with the time, like uvicorn's."""
    answer = await send(site, ordinary=False)
    state = connections[0].server_state
    said = parsedate_to_datetime(answer.headers["date"])
    await wait_until(
        lambda: parsedate_to_datetime(dict(state.default_headers)[b"date"].decode()) > said
    )
    later = await send(site, ordinary=False)
    assert parsedate_to_datetime(later.headers["date"]) > said


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"content": b""}, 422),
        ({"content": b"{"}, 422),
        ({"content": b'{"text": " "}'}, 400),
        ({"headers": {"Authorization": "Bearer a.b.c"}}, 401),
        ({"headers": {"Origin": "https://elsewhere.example"}}, 403),
        ({"headers": {"Idempotency-Key": "a b"}}, 400),
        ({"headers": {"Content-Type": "text/plain"}}, 415),
        ({"headers": {"Content-Encoding": "gzip"}}, 415),
    ],
)
async def test_refused_for_its_content(
    site: Site, taken: list[bool], change: dict[str, Any], status: int
) -> None:
    """A request refused for its content is refused in the lane, logged once and counted once."""
    headers = {**site.headers(), "Content-Type": "application/json", **change.get("headers", {})}
    answer = await site.live.client.post(
        "/widget/messages", headers=headers, content=change.get("content", b'{"text":"hi"}')
    )
    assert answer.status_code == status
    assert taken == [True]
    (line,) = [line for line in read_log(site, answer) if line["event"] == "request"]
    assert line["status"] == status


@pytest.mark.settings(rate_limit_messages_conversation="3/min")
async def test_refused_and_counted_once(site: Site) -> None:
    """A message refused for its text consumes its limit once, not twice."""
    answer = await site.live.client.post(
        "/widget/messages", headers=site.headers(), content=b'{"text":" "}'
    )
    assert answer.status_code == 400
    statuses = [(await site.send()).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


async def test_pipelined(site: Site) -> None:
    """Pipelined requests in one packet, some of them unusual, are answered in order."""
    reader, writer = await connect(site.live.url)
    writer.write(
        raw(site, "one", "1")
        + raw(site, "two", "2")
        + raw(site, " ", "3")
        + request("GET", "/health")
        + raw(site, "four", "4")
    )
    answers = await read_answers(reader, 5)
    writer.close()
    stored = (await site.history())["messages"]
    assert [message["content"] for message in stored] == ["one", "two", "four"]
    ids = [answers[place].get("message_id") for place in (0, 1, 4)]
    assert ids == [message["id"] for message in stored]
    assert answers[2]["detail"] == "invalid_text"
    assert answers[3] == {"status": "ok"}


async def test_byte_by_byte(site: Site, taken: list[bool]) -> None:
    """A request that arrives byte by byte is handled like any other."""
    reader, writer = await connect(site.live.url)
    for byte in raw(site, "in slices", "1"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    await read_answers(reader, 1)
    writer.close()
    assert taken == [True]
    assert [one["content"] for one in (await site.history())["messages"]] == ["in slices"]


async def test_truncated_body(site: Site, taken: list[bool]) -> None:
    """A body that never ends stores nothing."""
    _, writer = await connect(site.live.url)
    writer.write(raw(site, "half of this", "1")[:-5])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await site.send("whole")).status_code == 200
    assert taken == [True, True]
    assert [one["content"] for one in (await site.history())["messages"]] == ["whole"]


@pytest.mark.settings(rate_limit_messages_conversation="3/min")
async def test_half_a_request_is_counted(site: Site) -> None:
    """A client that disconnects after half a body is logged and consumes its limit."""
    for number in range(3):
        _, writer = await connect(site.live.url)
        writer.write(raw(site, "half of this", str(number))[:-5])
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def cut() -> list[dict[str, Any]]:
        return [line for line in site.live.events("request") if line["status"] == 408]

    await wait_until(lambda: len(cut()) == 3)
    assert {line["route"] for line in cut()} == {"/widget/messages"}
    assert (await site.send()).status_code == 429


async def test_shutdown_while_a_body_comes(site: Site, connections: list[Connection]) -> None:
    """A request whose body arrives during shutdown is the last of its connection."""
    reader, writer = await connect(site.live.url)
    head, _, body = raw(site, " ", "1").partition(b"\r\n\r\n")
    writer.write(head + b"\r\n\r\n")
    await wait_until(lambda: bool(connections))
    connections[0].shutdown()
    writer.write(body)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower()


async def test_nothing_of_a_body_is_kept(site: Site, connections: list[Connection]) -> None:
    """An idle connection keeps nothing of a visitor's request."""
    await site.send("x" * 1000)
    assert connections[0]._exchange is None
    assert isinstance(connections[0].cycle, Exchange)
    assert connections[0].cycle._pieces == []


async def test_leaves_nothing_to_collect(site: Site) -> None:
    """An answered request is freed at once: no reference cycle keeps it."""
    gc.collect()
    gc.disable()
    try:
        assert (await site.send()).status_code == 200
        left = [one for one in gc.get_objects() if type(one) is Request]
    finally:
        gc.enable()
    assert left == []


async def test_disconnected_before_the_response(site: Site) -> None:
    """If the client disconnects after sending, the message is stored; a retry gets the response."""
    _, writer = await connect(site.live.url)
    writer.write(raw(site, "and gone", "1"))
    await writer.drain()
    writer.transport.abort()
    answer = await site.send("and gone", key="1")
    assert answer.status_code == 200
    assert [one["content"] for one in (await site.history())["messages"]] == ["and gone"]


async def test_bug_while_answering(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug while answering closes only its own connection; others are answered."""
    send_answer = Exchange._send

    def broken(self: Exchange, request: Request, answer: Answer, lines: bytes) -> None:
        if b"the-faulty-one" in request.raw(b"idempotency-key"):
            raise ZeroDivisionError
        send_answer(self, request, answer, lines)

    monkeypatch.setattr(Exchange, "_send", broken)
    answers = await asyncio.gather(
        send(site, ordinary=False, Idempotency_Key="the-faulty-one"),
        *(send(site, ordinary=False, Idempotency_Key=f"fine-{n}") for n in range(8)),
        return_exceptions=True,
    )
    assert isinstance(answers[0], httpx.RemoteProtocolError | httpx.ReadError)
    assert [one.status_code for one in answers[1:] if isinstance(one, httpx.Response)] == [200] * 8
    (line,) = site.live.events("error")
    assert (line["error"], line["error_code"]) == ("ZeroDivisionError", "internal_error")
    assert line["conversation_id"] == site.conversation_id
    (request,) = [line for line in site.live.events("request") if line["status"] == 500]
    assert request["request_id"] == line["request_id"]


async def test_bug_before_the_store(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug before the store is a 500, not a client error."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(messages, "make_draft", broken)
    answers = await send_both(site)
    assert {answer.status_code for answer in answers} == {500}
