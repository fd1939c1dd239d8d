"""Random histories of one conversation against a model of a few lines.

The model: a stored key belongs to the text it was first sent with. The first request wins, equal
ones get its response, others 409. Nothing else may change what is stored: not a lost connection, a
client that disconnects, a restart, or the reaper, after which a key can be used again.

Fails with these defects planted: hashes not compared, `_retryable` keeping nothing, every
stored answer a replay, the reaper removing young keys.
"""

import asyncio
import io
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from cables import Cable, open_cable
from factories import Live, make_settings, serve_app
from hlas.conversations import messages
from hlas.store import writer
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins
from visitors import Visitor, arrive

Result = TypeVar("Result")

REPLAYED = "idempotent-replayed"
KEYS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["x", "y"])
SENDS = st.lists(st.tuples(st.none() | KEYS, TEXTS), min_size=2, max_size=8)


class World:
    """A real server behind a cable, in an event loop that runs on demand."""

    live: Live
    cable: Cable
    operators: Database

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self.runner = runner
        self.url = url
        self.stack = AsyncExitStack()
        self.server = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    async def open(self) -> None:
        self.cable = await self.stack.enter_async_context(open_cable(self.url))
        self.operators = await Database.open(Logins(self.url), OPERATOR, statement_seconds=60)
        self.stack.push_async_callback(self.operators.close)
        await self.start()

    async def start(self) -> None:
        settings = make_settings(self.cable.url)
        self.live = await self.server.enter_async_context(serve_app(settings, io.BytesIO()))

    async def restart(self) -> None:
        await self.server.aclose()
        await self.start()

    async def close(self) -> None:
        await self.server.aclose()
        await self.stack.aclose()


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 60.0)
    with asyncio.Runner() as runner:
        opened = World(runner, database_url)
        runner.run(opened.open())
        try:
            yield opened
        finally:
            runner.run(opened.close())


class Conversation(RuleBasedStateMachine):
    world: World

    @initialize()
    def open(self) -> None:
        # A history that failed half-way may have left the cable in a faulty state.
        self.world.cable.lose_next_answer = self.world.cable.lose_next_question = False
        (self.visitor,) = self.world.run(arrive(self.world.live.client, self.world.operators))
        # The first post prepares the statement, so that a lost response is that of a commit.
        self.world.run(self.visitor.post(self.world.live.client, "warm"))
        self.texts: Counter[str] = Counter(["warm"])
        # By key: the stored text and response.
        self.stored: dict[str, tuple[str, bytes]] = {}

    def check(self, key: str | None, text: str, answer: httpx.Response) -> None:
        """Check one response against the model, and update the model."""
        known = self.stored.get(key) if key else None
        if known is None:
            assert answer.status_code == 200, answer.text
            assert REPLAYED not in answer.headers
            self.texts[text] += 1
            if key:
                self.stored[key] = (text, answer.content)
        elif known[0] == text:
            assert (answer.status_code, answer.content) == (200, known[1])
            assert answer.headers[REPLAYED] == "true"
        else:
            assert answer.status_code == 409
            assert answer.json()["detail"] == "idempotency_key_conflict"

    @rule(key=st.none() | KEYS, text=TEXTS)
    def post(self, key: str | None, text: str) -> None:
        answer = self.world.run(self.visitor.post(self.world.live.client, text, key))
        self.check(key, text, answer)

    @rule(sends=SENDS)
    def post_together(self, sends: list[tuple[str | None, str]]) -> None:
        answers = self.world.run(_together(self.world.live.client, self.visitor, sends))
        both = list(zip(sends, answers, strict=True))
        # Of the requests that raced for a key, the one without a replay was the first.
        both.sort(key=lambda one: (one[1].status_code, REPLAYED in one[1].headers))
        for (key, text), answer in both:
            self.check(key, text, answer)

    @rule(key=KEYS, text=TEXTS, answer_lost=st.booleans())
    def post_over_a_broken_connection(self, key: str, text: str, *, answer_lost: bool) -> None:
        if answer_lost:
            self.world.cable.lose_next_answer = True
        else:
            self.world.cable.lose_next_question = True
        answer = self.world.run(self.visitor.post(self.world.live.client, text, key))
        self.check(key, text, answer)

    @rule(key=KEYS, text=TEXTS)
    def leave_without_the_answer(self, key: str, text: str) -> None:
        """The client disconnects when its message is stored, or was stored before."""
        self.world.run(_leave(self.world, self.visitor, key, text))
        if key not in self.stored:
            again = self.world.run(self.visitor.post(self.world.live.client, text, key))
            assert (again.status_code, again.headers[REPLAYED]) == (200, "true")
            self.texts[text] += 1
            self.stored[key] = (text, again.content)

    @rule()
    def cut(self) -> None:
        self.world.cable.cut()

    @rule()
    def restart(self) -> None:
        self.world.run(self.world.restart())

    @rule(key=KEYS)
    def reap(self, key: str) -> None:
        """One key expires; the reaper deletes it and keeps the others."""
        self.world.run(_reap(self.world.operators, self.visitor, key))
        self.stored.pop(key, None)

    @invariant()
    def holds(self) -> None:
        rows = self.world.run(_rows(self.world.operators, self.visitor))
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        assert Counter(row["content"] for row in rows) == self.texts


async def _together(
    client: httpx.AsyncClient, visitor: Visitor, sends: list[tuple[str | None, str]]
) -> list[httpx.Response]:
    return await asyncio.gather(*(visitor.post(client, text, key) for key, text in sends))


async def _leave(world: World, visitor: Visitor, key: str, text: str) -> None:
    address = httpx.URL(world.live.url)
    assert address.port is not None
    _, sender = await asyncio.open_connection(address.host, address.port)
    body = f'{{"text": "{text}"}}'
    given = {
        **visitor.headers,
        "Host": "a",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Idempotency-Key": key,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    before = _count_answered(world)
    sender.write(f"POST /widget/messages HTTP/1.1\r\n{head}\r\n{body}".encode())
    await sender.drain()
    async with asyncio.timeout(60):
        while not await _is_stored(world.operators, visitor, key):  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.005)
        sender.transport.abort()
        # A key that was stored before proves nothing about this request; if it were reaped while
        # the request is still in progress, the message would correctly be a new one.
        while _count_answered(world) == before:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.005)


def _count_answered(world: World) -> float:
    metrics = world.live.app.state.services.metrics
    metrics.hand_over()
    labels = {"method": "POST", "route": "/widget/messages"}
    count = metrics.registry.get_sample_value("hlas_http_request_duration_seconds_count", labels)
    return float(count or 0)


async def _is_stored(operators: Database, visitor: Visitor, key: str) -> bool:
    row = await operators.one(
        "select from idempotency_keys where conversation_id = $1 and key = $2",
        visitor.conversation_id,
        key,
    )
    return row is not None


async def _reap(operators: Database, visitor: Visitor, key: str) -> None:
    await operators.execute(
        "update idempotency_keys set created_at = created_at - interval '1000 hours'"
        " where conversation_id = $1 and key = $2",
        visitor.conversation_id,
        key,
    )
    await messages.reap_keys(operators, 168)


async def _rows(operators: Database, visitor: Visitor) -> list[Any]:
    return await operators.all(
        "select seq, content from messages where conversation_id = $1 order by seq",
        visitor.conversation_id,
    )


def explore(world: World, **options: Any) -> None:
    class Bound(Conversation):
        pass

    Bound.world = world
    run_state_machine_as_test(
        Bound,
        settings=settings(
            deadline=None, suppress_health_check=list(HealthCheck), database=None, **options
        ),
    )


def test_model(world: World) -> None:
    """Edge cases 1, 3, 4, 7, 8, 15 and 17 in random order: a few hundred fixed steps."""
    # Shrinking is slow with real servers: a failure is shown as it was found.
    explore(
        world,
        max_examples=8,
        stateful_step_count=30,
        derandomize=True,
        phases=[Phase.generate],
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_model_at_length(world: World) -> None:
    """The same with thousands of steps, different each time."""
    explore(world, max_examples=100, stateful_step_count=50)
