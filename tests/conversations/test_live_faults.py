"""Streams when things go wrong: text that was void, floods, outages, a server that stops."""

import asyncio
import io
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
import pytest_asyncio
import uuid_utils

from administration import make_desk
from factories import Live, Site, make_site, serve_app
from hlas.agent import Answer, Listener, Question, replies
from hlas.conversations import live as lives
from hlas.conversations.frames import Cursor, RunPosition
from hlas.conversations.readers import Progress, Reader
from hlas.conversations.runs import Run
from hlas.errors import Unavailable
from hlas.operators import sign_ins
from hlas.services import Services
from hlas.settings import Settings
from hlas.store.db import Database
from scripted_agent import RESUMED
from streams import Follower, follow, open_stream

KEY = ("tenant", "conversation")
TENANT = str(UUID(int=1))


def services_of(live: Live) -> Services:
    services: Services = live.app.state.services
    return services


class Bytes:
    """A sink that keeps what it gets."""

    def __init__(self, on_write: Callable[[], None] = lambda: None) -> None:
        self.data = b""
        self.unsent = 0
        self.on_write = on_write

    def write(self, data: bytes) -> None:
        self.data += data
        self.on_write()

    def close(self) -> None: ...


async def cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, httpx.HTTPError):
        await task


async def test_answer_of_another_attempt(
    visit: Site, workers: list[Live], operators: Database
) -> None:
    """A reader that has seen text of a lost attempt, and then only the answer of the next one."""
    follower = Follower()
    reading = asyncio.create_task(follow(workers[0].client, visit, follower))
    await visit.send("say 300 words in 60 s")
    await follower.until_text("word3")
    await cancel(reading)
    await operators.execute("update runs set owner = null, lease_until = now() - interval '1 s'")
    async with asyncio.timeout(15):
        while len((await visit.history())["messages"]) < 2:  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.05)
    reading = asyncio.create_task(follow(workers[1].client, visit, follower))
    await follower.until(["user", "assistant"])
    await cancel(reading)
    assert follower.messages[1]["content"] == RESUMED
    assert follower.resets == 1
    assert follower.text == ""


class Failing:
    """An agent whose model breaks in mid-sentence."""

    async def answer(self, _: Question, listener: Listener) -> Answer:
        listener.say("It is open from nine to ")
        await asyncio.sleep(0.3)
        raise OSError


@pytest.mark.parametrize("number", [0, 1])
async def test_agent_that_fails_in_mid_sentence(
    visit: Site, workers: list[Live], number: int
) -> None:
    """What was said is void, on every worker; the message is the fallback sentence."""
    services_of(workers[0]).runner._agent = Failing()
    follower = Follower()
    reading = asyncio.create_task(follow(workers[number].client, visit, follower))
    await visit.send("when?")
    await follower.until(["user", "assistant"])
    await cancel(reading)
    assert follower.messages[1]["metadata"]["source"] == "fallback"
    assert follower.resets == 1
    assert follower.text == ""


@pytest.mark.parametrize("said", [Progress(2, 1, ["{}"]), Progress(1, 1, ["{}"])])
def test_speech_out_of_turn(said: Progress) -> None:
    """Text of the next run waits for the answer of this one; a lost attempt is not shown."""
    reader, sink = Reader(KEY, Cursor(2, RunPosition(1, 2, 3, 10))), Bytes()
    reader.connect(sink)
    before = sink.data
    reader.deliver_speech(said)
    assert sink.data == before


def test_reader_that_leaves_while_it_is_written_to() -> None:
    """The framework's streams end while text is delivered; the agent goes on."""
    live = lives.Live("worker")
    for _ in range(3):
        reader, sink = Reader(KEY, Cursor(1)), Bytes()
        reader.connect(sink)
        live._topics.setdefault(KEY, lives.Topic()).readers.add(reader)
        sink.on_write = lambda reader=reader: live.leave(reader)  # type: ignore[misc]  # bound now
    live.speak(Run(KEY[0], "run", KEY[1], 1, 1, 0, 1), "message")
    assert live.open_streams == 0


async def test_check_without_a_database(
    visit: Site, workers: list[Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens expire and streams are kept alive while the database is away."""
    live = services_of(workers[0]).live

    async def fail(*_: object) -> list[Any]:
        raise Unavailable

    expired = Reader((visit.tenant_id, visit.conversation_id), Cursor(0), ends_at=0.0)
    idle = Reader((visit.tenant_id, visit.conversation_id), Cursor(0))
    sink = Bytes()
    live.open(expired, Bytes())
    live.open(idle, sink)
    monkeypatch.setattr(live._operators, "all", fail)
    monkeypatch.setattr("hlas.conversations.readers.KEEP_ALIVE_SECONDS", 0.0)
    with pytest.raises(Unavailable):
        await live.check()
    [topic] = live._topics.values()
    assert topic.readers == {idle}
    assert b": keep-alive" in sink.data
    live.leave(idle)


@pytest_asyncio.fixture
async def alone(database: Database, operators: Database) -> lives.Live:
    """The readers of a worker that nobody ticks; one follows a conversation."""
    made = lives.Live(str(uuid_utils.uuid4()))
    made.connect(database, operators, partial(sign_ins.find_valid, operators))
    made._topics[TENANT, TENANT] = lives.Topic()
    return made


async def publish(live: lives.Live, count: int) -> None:
    for number in range(count):
        live.touch(TENANT, str(UUID(int=number)))
    await live._publish()


async def test_own_changes_are_read_once(alone: lives.Live, operators: Database) -> None:
    """A busy worker does not read its own changes again and again."""
    await alone.tick()
    await publish(alone, 3)
    await alone.tick()
    [last] = await operators.all("select max(id) as id from changes")
    assert (alone._position, alone._seen) == (last["id"], {})


async def test_changes_out_of_order(alone: lives.Live, operators: Database) -> None:
    """A change that is committed after one with a higher id is noticed, too."""
    noticed: list[Any] = []
    alone._topics[TENANT, TENANT].watchers.add(lambda: noticed.append(1))
    await alone.tick()
    noticed.clear()
    [early] = await operators.all("select nextval('change_ids') as id")
    await publish(alone, 1)
    await alone.tick()
    assert alone._position == early["id"] - 1
    assert noticed == []
    await operators.execute(
        "insert into changes (tenant_id, id, conversation_id) values ($1, $2, $1)",
        TENANT,
        early["id"],
    )
    await alone.tick()
    assert noticed == [1]
    assert (alone._position, alone._seen) == (early["id"] + 1, {})


async def test_gap_that_is_never_filled(
    alone: lives.Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id whose transaction failed does not hold the position back for ever."""
    await alone.tick()
    [lost] = await operators.all("select nextval('change_ids') as id")
    await publish(alone, 2)
    await alone.tick()
    assert alone._position == lost["id"] - 1
    monkeypatch.setattr(lives, "SETTLE_SECONDS", -1.0)
    await alone.tick()
    assert (alone._position, alone._seen) == (lost["id"] + 2, {})


async def test_last_changes_are_published(
    alone: lives.Live, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed statement did not publish, and what changed just before the worker stops."""

    async def fail(*_: object) -> str:
        raise asyncpg.UniqueViolationError

    with monkeypatch.context() as patched:
        patched.setattr(alone._operators, "execute", fail)
        with pytest.raises(asyncpg.UniqueViolationError):
            await publish(alone, 1)
    alone.touch(TENANT, str(UUID(int=7)))
    await alone.close()
    rows = await operators.all("select conversation_id from changes order by conversation_id")
    assert [row["conversation_id"].int for row in rows] == [0, 7]


async def test_busy_operators(visit: Site, workers: list[Live]) -> None:
    """Long statements of administrators do not take the connections of leases and streams."""
    services = services_of(workers[0])
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(services.operators.transaction())
        with pytest.raises(Unavailable):
            await services.operators.one("select 1")
        await services.runner.tick()
        await services.live.tick()
        await services.live.check()


@pytest.mark.settings(rate_limit_streams_conversation=1, rate_limit_enforce=False)
async def test_limit_in_a_dry_run(visit: Site, workers: list[Live]) -> None:
    """In a dry run the stream opens, and the refusal is logged and counted."""
    first, second = Follower(), Follower()
    async with open_stream(workers[0].client, visit, first) as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        async with open_stream(workers[0].client, visit, second) as another:
            assert another.status_code == 200
    [line] = workers[0].events("blocked")
    assert (line["scope"], line["enforced"]) == ("conversation", False)
    assert line["route"] == "/widget/conversations/{conversation_id}/stream"
    metrics = (await workers[0].client.get("/metrics")).text
    assert 'reason="rate_limited_dry_run"' in metrics


@pytest.mark.settings(rate_limit_streams_conversation=2)
async def test_opened_at_once(visit: Site, workers: list[Live]) -> None:
    """The limit holds for streams that are opened at the same moment."""
    codes: list[int] = []
    async with AsyncExitStack() as stack:

        async def open_one() -> None:
            stream = open_stream(workers[0].client, visit, Follower())
            codes.append((await stack.enter_async_context(stream)).status_code)

        await asyncio.gather(*(open_one() for _ in range(20)))
    assert sorted(codes) == [200] * 2 + [429] * 18


@pytest.mark.settings(rate_limit_streams_ip=1)
async def test_administrators_are_limited(visit: Site, operators: Database) -> None:
    """A key opens no more streams than an address, and takes no place of the visitor's."""
    desk = await make_desk(visit.live, operators, visit.slug)
    path = f"/tenants/{visit.slug}/conversations/{visit.conversation_id}/stream"
    headers = {"Authorization": f"Bearer {desk.key}"}
    async with visit.live.client.stream("GET", f"/admin{path}", headers=headers) as response:
        assert response.status_code == 200
        pieces = response.aiter_raw()
        await anext(pieces)
        assert (await desk.ask("GET", path)).status_code == 429
        async with open_stream(visit.live.client, visit, Follower()) as own:
            assert own.status_code == 200


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_server_stops_at_once(
    settings: Settings, logs: io.BytesIO, operators: Database, connection: str
) -> None:
    """Open streams, and those that are about to open, do not hold up a server that stops."""
    follower = Follower()
    async with asyncio.timeout(10), httpx.AsyncClient(timeout=20) as client:
        async with serve_app(settings, logs) as live:
            site = await make_site(live, operators)
            client.base_url = httpx.URL(live.url)
            opened = open_stream(client, site, follower, Connection=connection)
            response = await opened.__aenter__()
            assert response.status_code == 200
            live_readers = services_of(live).live
        await response.aread()
        await opened.__aexit__(None, None, None)
    sink = Bytes()
    reader = Reader((site.tenant_id, site.conversation_id), Cursor(0))
    live_readers.open(reader, sink)
    assert live_readers.open_streams == 0


async def test_many_readers_at_once(
    visit: Site, workers: list[Live], operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many conversations changed, a statement reads a few, and all are read."""
    monkeypatch.setattr(lives, "STATEMENT_CONVERSATIONS", 2, raising=False)
    live = services_of(workers[0]).live
    sizes: list[int] = []
    read = live._database.all

    async def note(query: str, *arguments: Any) -> list[Any]:
        sizes.append(len(arguments[1]))
        return await read(query, *arguments)

    monkeypatch.setattr(live._database, "all", note)
    sinks = []
    for _ in range(5):
        await visit.open()
        sinks.append(Bytes())
        live.open(Reader((visit.tenant_id, visit.conversation_id), Cursor(0)), sinks[-1])
    async with asyncio.timeout(10):
        while not all(b"data-state" in sink.data for sink in sinks):  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.01)
    assert max(sizes) <= 2


async def test_metadata_of_visitors(visit: Site, workers: list[Live]) -> None:
    """Whatever a visitor says a message is about, readers get it."""
    follower = Follower()
    reading = asyncio.create_task(follow(workers[0].client, visit, follower))
    await visit.send("hello", metadata={"reply_to": "x"})
    await follower.until(["user", "assistant"])
    await cancel(reading)


@pytest.mark.settings(rate_limit_messages_ip="1/h")
async def test_replay_for_another_origin(answered: Site) -> None:
    """A limit that is used up does not open what the origin closes."""
    client, path = answered.live.client, "/widget/messages/assistant"
    await answered.send("hello")
    keyed = {**answered.headers(), "Idempotency-Key": "one"}
    assert (await client.post(path, headers=keyed)).status_code == 200
    foreign = {**keyed, "Origin": "https://evil.example"}
    refused = await client.post(path, headers=foreign)
    assert refused.status_code in {403, 429}


async def test_waiting_while_text_grows(
    visit: Site, workers: list[Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for an answer on another worker does not look at every word of it."""
    looks = 0
    read = replies.read

    async def note(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        return await read(*arguments)

    monkeypatch.setattr(replies, "read", note)
    await visit.send("say 80 words in 4 s")
    answer = await workers[1].client.post("/widget/messages/assistant", headers=visit.headers())
    assert answer.json()["source"] == "agent"
    assert looks < 30
