"""Leases: who may answer a run, how often, and how many at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
import uuid_utils

import drafts
from factories import Live, Site, make_site
from hlas.agent import Agent, Answer, Listener, Question, runner
from hlas.agent.phrases import FALLBACK
from hlas.agent.runner import MOST_ATTEMPTS, Runner
from hlas.conversations import conversations, runs
from hlas.conversations import live as lives
from hlas.errors import Unavailable
from hlas.observe.metrics import Metrics
from hlas.operators import sign_ins
from hlas.services import Services
from hlas.store.db import Database
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer
from hlas.tenants import tenants
from hlas.visitors.tokens import Session
from scripted_agent import RESUMED, ScriptedAgent


class Parts:
    """A runner that nobody ticks, its metrics, and a writer whose runs nobody answers."""

    def __init__(self, url: str, database: Database, operators: Database, agent: Agent) -> None:
        self.metrics = Metrics()
        live = lives.Live(str(uuid_utils.uuid4()))
        live.connect(database, operators, partial(sign_ins.find_valid, operators))
        self.writer = Writer(Logins(url), APPLICATION, worker=live.worker)
        self.runner = self.writer.listener = Runner(
            live, self.writer, agent, database, operators, self.metrics
        )
        self.dead = Writer(Logins(url), APPLICATION)


@pytest.fixture
def open_parts(database_url: str, database: Database, operators: Database) -> Callable[..., Any]:
    @asynccontextmanager
    async def open_with(agent: Agent) -> AsyncIterator[Parts]:
        parts = Parts(database_url, database, operators, agent)
        yield parts
        for writer in (parts.writer, parts.dead):
            await writer.close()
        await parts.runner.finish()

    return open_with


async def expire(operators: Database) -> None:
    await operators.execute("update runs set lease_until = now() - interval '1 s'")


async def until_done(operators: Database, count: int = 1) -> None:
    async with asyncio.timeout(30):
        while len(await operators.all("select 1 from runs where state = 'done'")) < count:  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.02)


async def until_idle(parts: Parts) -> None:
    async with asyncio.timeout(30):
        while parts.runner._tasks:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.005)


class ReadyAgent:
    """Answers at once."""

    def __init__(self, text: str = RESUMED) -> None:
        self.asked = 0
        self.text = text

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.asked += 1
        return Answer(self.text, "knowledge", 1.0)


class HeldAgent:
    """Never answers; counts those that wait, by tenant."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.most_of_all = 0

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.waiting[question.tenant_id] += 1
        self.most |= self.waiting
        self.most_of_all = max(self.most_of_all, self.waiting.total())
        try:
            await self.gate.wait()
        finally:
            self.waiting[question.tenant_id] -= 1
        return Answer(RESUMED, "knowledge", 1.0)

    async def until_asked(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.waiting.total() < count:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.005)


async def test_own_run_is_not_claimed(
    open_parts: Callable[..., Any],
    session: Session,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that could not renew a lease in time does not answer the run a second time."""
    agent = HeldAgent()
    async with open_parts(agent) as parts:
        await drafts.send(parts.writer, session, "hello")
        await agent.until_asked(1)
        await expire(operators)
        await parts.runner._claim()
        renew = runs.renew
        monkeypatch.setattr(runs, "renew", fail)
        with pytest.raises(Unavailable):
            await parts.runner.tick()
        monkeypatch.setattr(runs, "renew", renew)
        assert agent.most_of_all == 1
        agent.gate.set()
        await until_done(operators)
    [row] = await operators.all("select attempt from runs")
    assert row["attempt"] == 1


async def fail(*_: object, **__: object) -> Any:
    raise Unavailable


async def test_all_runs_of_a_dead_worker(
    open_parts: Callable[..., Any], operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tick takes over all runs, however few a statement claims (edge case 56)."""
    monkeypatch.setattr(runs, "CLAIMED", 2)
    async with open_parts(ReadyAgent()) as parts:
        for _ in range(5):
            await drafts.send(parts.dead, await drafts.make_session(operators), "hello")
        await expire(operators)
        await parts.runner.tick()
        await until_done(operators, 5)


async def test_signal_during_a_claim(
    open_parts: Callable[..., Any],
    session: Session,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that begins to wait while a claim is in flight is claimed right after it."""
    claim, gate, calls = runs.claim, asyncio.Event(), 0

    async def claim_nothing(*arguments: Any) -> list[runs.Run]:
        nonlocal calls
        calls += 1
        if calls == 1:
            await gate.wait()
            return []
        return await claim(*arguments)

    async with open_parts(ReadyAgent()) as parts:
        await drafts.send(parts.dead, session, "hello")
        await expire(operators)
        monkeypatch.setattr(runs, "claim", claim_nothing)
        parts.runner.on_waiting_run()
        async with asyncio.timeout(30):
            while not calls:  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.005)
        parts.runner.on_waiting_run()
        gate.set()
        await until_done(operators)


async def test_answers_at_once(
    open_parts: Callable[..., Any], operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models' answers of a worker, and answers of a tenant, are bounded; the knowledge's go on."""
    monkeypatch.setattr(runner, "MODEL_ANSWERS", 3)
    monkeypatch.setattr(runner, "TENANT_ANSWERS", 2)
    agent = HeldAgent()
    async with open_parts(agent) as parts:
        first = await drafts.make_session(operators)
        second = await drafts.make_session(operators)
        await operators.execute(
            "insert into agent_settings (tenant_id, models) select id, '{m}' from tenants"
        )
        for tenant_id in [first.tenant_id] * 4 + [second.tenant_id] * 4:
            await drafts.send(
                parts.writer, await drafts.make_session(operators, tenant_id), "hello"
            )
        await agent.until_asked(3)
        # A tenant without a model is not held up.
        await drafts.send(parts.writer, await drafts.make_session(operators), "hello")
        await agent.until_asked(4)
        # Those that wait keep their leases.
        await expire(operators)
        await parts.runner.tick()
        agent.gate.set()
        await until_done(operators, 9)
    assert agent.most_of_all == 4
    assert max(agent.most.values()) == 2
    rows = await operators.all("select distinct attempt from runs")
    assert [row["attempt"] for row in rows] == [1]


async def test_attempts_without_the_agent(
    open_parts: Callable[..., Any],
    session: Session,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt that ends before the agent is asked does not count: the database was away."""
    agent = ReadyAgent()
    async with open_parts(agent) as parts:
        brief = runs.brief
        monkeypatch.setattr(runs, "brief", fail)
        await drafts.send(parts.writer, session, "hello")
        for _ in range(MOST_ATTEMPTS + 1):
            await until_idle(parts)
            await expire(operators)
            await parts.runner.tick()
        await until_idle(parts)
        monkeypatch.setattr(runs, "brief", brief)
        await expire(operators)
        await parts.runner.tick()
        await until_done(operators)
    assert agent.asked == 1
    assert (await drafts.contents(operators, session))[1] == RESUMED


async def test_briefing_that_fails_again_and_again(
    open_parts: Callable[..., Any],
    session: Session,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever fails whenever the texts are read, the visitor gets the fallback sentence."""
    agent, brief = ReadyAgent(), runs.brief

    async def fail_with_texts(*arguments: Any, texts: int) -> Any:
        if texts:
            raise Unavailable
        return await brief(*arguments, texts=texts)

    monkeypatch.setattr(runs, "brief", fail_with_texts)
    async with open_parts(agent) as parts:
        await drafts.send(parts.writer, session, "hello")
        for _ in range(runner.MOST_CLAIMS):
            await until_idle(parts)
            await expire(operators)
            await parts.runner.tick()
        await until_done(operators)
    assert agent.asked == 0
    assert (await drafts.contents(operators, session))[1] == FALLBACK["en"]


class NotingAgent(ReadyAgent):
    """Answers after a while, and keeps the question."""

    question: Question

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.question = question
        await asyncio.sleep(4 * runner.PATIENCE_SECONDS)
        return await super().answer(question, listener)


async def test_handed_back_after_hours(
    open_parts: Callable[..., Any],
    session: Session,
    operators: Database,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run reads a bounded part of what it answers, and none of it while it is watched."""
    await operators.execute(
        """
        with counted as (update conversations set last_seq = 2000 where id = $2::text::uuid)
        insert into messages (tenant_id, id, conversation_id, seq, role, content)
        select $1::text::uuid, gen_random_uuid(), $2::text::uuid, seq, 'user',
               seq || repeat('ž', 5000)
        from generate_series(1, 2000) as seq
        """,
        session.tenant_id,
        session.conversation_id,
    )
    sizes: list[int] = []
    one = database.one

    async def note(query: str, *arguments: Any) -> Any:
        row = await one(query, *arguments)
        if query == runs.queries.read_run and row is not None:
            sizes.append(sum(len(text.encode()) for text in row["texts"] or ()))
        return row

    monkeypatch.setattr(database, "one", note)
    agent = NotingAgent()
    async with open_parts(agent) as parts:
        await parts.runner.answer_unanswered(session.tenant_id, session.conversation_id)
        await until_done(operators)
    assert agent.question.text.startswith("2000ž")
    assert [text[:4] for text in agent.question.earlier] == ["1995", "1996", "1997", "1998", "1999"]
    assert 0 < sizes[0] <= runs.TEXT_BYTES
    assert set(sizes[1:]) == {0}


async def test_worker_that_fails_again_and_again(
    open_parts: Callable[..., Any], session: Session, operators: Database
) -> None:
    """A question that ends its workers is answered with the fallback sentence, not for ever."""
    agent = HeldAgent()
    async with open_parts(agent) as parts:
        await drafts.send(parts.writer, session, "hello")
        for _ in range(MOST_ATTEMPTS):
            await agent.until_asked(1)
            [task] = parts.runner._tasks
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await expire(operators)
            await parts.runner.tick()
        await until_done(operators)
    assert (await drafts.contents(operators, session))[1] == FALLBACK["en"]


@pytest.mark.parametrize("text", ["", " \n"])
async def test_blank_answer(
    open_parts: Callable[..., Any], session: Session, operators: Database, text: str
) -> None:
    """An agent that says nothing is one that does not know."""
    async with open_parts(ReadyAgent(text)) as parts:
        await drafts.send(parts.writer, session, "hello")
        await until_done(operators)
        assert (await drafts.contents(operators, session))[1] == FALLBACK["en"]
        registry = parts.metrics.registry
        seconds = registry.get_sample_value("hlas_run_first_token_seconds_sum")
        assert seconds is not None
        assert seconds > 0


async def until_cancelled(operators: Database, site: Site) -> None:
    running = site.live.app.state.services.runner._tasks
    async with asyncio.timeout(30):
        while running:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.02)
    rows = await operators.all(
        "select state from runs where conversation_id = $1::text::uuid", site.conversation_id
    )
    assert [row["state"] for row in rows] == ["cancelled"]


@pytest_asyncio.fixture
async def speaking(live_server: Live, operators: Database, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A visitor whose answer is being made, slowly."""
    services: Services = live_server.app.state.services
    agent = services.runner._agent = ScriptedAgent()
    # What happens is not found out by the look every 15 s.
    monkeypatch.setattr(lives, "KEEP_ALIVE_SECONDS", 3600.0)
    site = await make_site(live_server, operators, handler="agent")
    await site.send("say 300 words in 600 s")
    # The runner looks at a run when its answer takes long, and when the worker begins to poll.
    async with asyncio.timeout(30):
        while not agent.requests or services.live._position is None:  # noqa: ASYNC110  # no event
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    return site


async def test_closed_in_mid_answer(speaking: Site, operators: Database) -> None:
    """A conversation that is closed costs no more: its run ends, wherever it was closed."""
    ids = UUID(speaking.tenant_id), UUID(speaking.conversation_id)
    await conversations.close(operators, *ids)
    await until_cancelled(operators, speaking)


async def test_disabled_in_mid_answer(speaking: Site, operators: Database) -> None:
    """A tenant that is disabled costs no more; enabled again, it answers those who ask again."""
    await tenants.set_active(operators, speaking.slug, active=False)
    await until_cancelled(operators, speaking)
    live = speaking.live
    live.app.state.services.runner._agent = ReadyAgent()
    await tenants.set_active(operators, speaking.slug, active=True)
    answer = await live.client.post("/widget/messages/assistant", headers=speaking.headers())
    assert (answer.status_code, answer.json()["text"]) == (200, RESUMED)
