"""Runs that nobody works on any more, and statements that meet: every message gets its answer."""

import asyncio
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

import drafts
from administration import Desk, make_desk
from factories import Live, Site, make_site
from hlas.agent import Answer, Listener, Question, runner
from hlas.agent.replies import REQUEST_HASH
from hlas.conversations import conversations, messages, runs
from hlas.conversations.messages import NewMessage
from hlas.errors import IdempotencyKeyConflict, Unavailable
from hlas.services import Services
from hlas.store.db import Database, log_in
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session
from scripted_agent import RESUMED, ScriptedAgent

LONG = "say 300 words in 60 s"


@pytest_asyncio.fixture
async def talking(live_server: Live, operators: Database) -> Site:
    """A site whose agent streams what it is told to."""
    live_server.app.state.services.runner._agent = ScriptedAgent()
    return await make_site(live_server, operators, handler="agent")


def services_of(site: Site) -> Services:
    services: Services = site.live.app.state.services
    return services


async def until(site: Site, roles: list[str]) -> list[dict[str, str]]:
    async with asyncio.timeout(15):
        while True:
            found: list[dict[str, str]] = (await site.history())["messages"]
            if [message["role"] for message in found] == roles:
                return found
            await asyncio.sleep(0.05)


async def until_state(operators: Database, site: Site, state: str) -> None:
    query = "select 1 from runs where conversation_id = $1::text::uuid and state = $2"
    async with asyncio.timeout(15):
        while not await operators.all(query, site.conversation_id, state):  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.02)


class ReadyAgent:
    """Answers at once."""

    async def answer(self, question: Question, listener: Listener) -> Answer:
        return Answer(RESUMED, "knowledge", 1.0)


async def hand(desk: Desk, site: Site, handler: str) -> None:
    if handler == "agent":
        services_of(site).runner._agent = ReadyAgent()
    path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/handler"
    assert (await desk.ask("PUT", path, json={"handler": handler})).status_code == 200


@pytest.mark.parametrize("meanwhile", [[], ["and another thing"]])
async def test_handed_back_unanswered(
    talking: Site, operators: Database, meanwhile: list[str]
) -> None:
    """A takeover cancels the answer; handed back without a word, the agent answers after all."""
    desk = await make_desk(talking.live, operators, talking.slug)
    await talking.send(LONG)
    await hand(desk, talking, "human")
    for text in meanwhile:
        await talking.send(text)
    await hand(desk, talking, "agent")
    [*_, answer] = await until(talking, ["user", *("user" for _ in meanwhile), "assistant"])
    assert answer["content"] == RESUMED


async def test_handed_back_after_an_earlier_answer(talking: Site, operators: Database) -> None:
    """A message is unanswered even if the answer to an earlier one was stored after it."""
    desk = await make_desk(talking.live, operators)
    await talking.send("say 4 words in 0.4 s")
    await talking.send(LONG)
    await until(talking, ["user", "user", "assistant"])
    await until_state(operators, talking, "running")
    await hand(desk, talking, "human")
    await hand(desk, talking, "agent")
    await until(talking, ["user", "user", "assistant", "assistant"])


async def test_handed_back_by_a_worker_that_dies(talking: Site, operators: Database) -> None:
    """The hand-back and the run that it causes are one transaction."""
    await talking.send(LONG)
    tenant_id, conversation_id = UUID(talking.tenant_id), UUID(talking.conversation_id)
    await conversations.set_handler(operators, tenant_id, conversation_id, "human")
    services_of(talking).runner._agent = ReadyAgent()
    await conversations.set_handler(operators, tenant_id, conversation_id, "agent")
    await until(talking, ["user", "assistant"])


async def test_stopped_stays_stopped(talking: Site, operators: Database) -> None:
    """What the visitor stopped is not answered when the conversation is handed back."""
    desk = await make_desk(talking.live, operators)
    await talking.send("say 1 words in 60 s")
    path = f"/widget/conversations/{talking.conversation_id}/stop"
    assert (await talking.live.client.post(path, headers=talking.headers())).status_code == 204
    await until_state(operators, talking, "stopped")
    await hand(desk, talking, "human")
    await hand(desk, talking, "agent")
    assert not await operators.all("select 1 from runs where state in ('waiting', 'running')")


async def test_failed_run_of_a_busy_worker(
    talking: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker renews what it works on: a run that failed there is not kept from the others."""
    await talking.send(LONG)
    other = await make_site(talking.live, operators, handler="agent")
    brief = runs.brief

    async def fail(*_: object, **__: object) -> runs.Briefing:
        monkeypatch.setattr(runs, "brief", brief)
        raise Unavailable

    monkeypatch.setattr(runs, "brief", fail)
    await other.send("hello")
    await until(other, ["user", "assistant"])


async def test_renewal_waits_for_nobody(
    talking: Site, operators: Database, locker: asyncpg.Connection
) -> None:
    """A statement that waits for a run while it holds another could deadlock with the writer."""
    other = await make_site(talking.live, operators, handler="agent")
    for site in (talking, other):
        await site.send(LONG)
    first, second = talking.conversation_id, other.conversation_id
    await locker.execute("update runs set is_stopping = true where conversation_id = $1", first)
    await operators.execute(
        "update runs set lease_until = now() where conversation_id = $1", second
    )
    async with asyncio.timeout(10):
        await services_of(talking).runner.tick()
    rows = await operators.all(
        "select attempt, lease_until > now() + interval '1 s' as is_renewed"
        " from runs where conversation_id = $1",
        second,
    )
    assert [tuple(row) for row in rows] == [(1, True)]


async def test_erased_in_mid_answer(
    talking: Site, operators: Database, locker: asyncpg.Connection
) -> None:
    """A conversation that is erased while its answer is made holds up nobody else's text."""
    other = await make_site(talking.live, operators, handler="agent")
    live = services_of(talking).live
    await talking.send(LONG)
    await until_state(operators, talking, "running")
    await locker.execute("delete from conversations where id = $1", talking.conversation_id)
    await other.send(LONG)
    async with asyncio.timeout(10):
        while len(live._speeches) < 2:  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.01)
        await live._flush()
        await locker.execute("commit")
        await live._flush()
    assert services_of(talking).background.report()["live"].failures == 0


async def test_worker_that_closes_claims_nothing(
    talking: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker releases when it stops is for the others."""
    monkeypatch.setattr(runner, "CLOSE_SECONDS", 0.0)
    await talking.send(LONG)
    closing = services_of(talking).runner
    await closing.finish()
    await closing.release()
    await closing.tick()
    [row] = await operators.all("select owner, attempt from runs")
    assert tuple(row) == (None, 1)


async def test_replay_of_an_operators_message(
    store: Writer, session: Session, operators: Database
) -> None:
    """A retry of an operator's message takes nothing over: a visitor's message gets its run."""
    arguments = (session.tenant_id, session.conversation_id)
    spoken = NewMessage(text="hello")
    await messages.create_as_operator(store, *arguments, spoken, "key")
    tenant_id, conversation_id = map(UUID, arguments)
    await conversations.set_handler(operators, tenant_id, conversation_id, "agent")
    await asyncio.gather(
        messages.create_as_operator(store, *arguments, spoken, "key"),
        drafts.send(store, session, "a question"),
    )
    rows = await operators.all("select state, reply_to from runs")
    assert [tuple(row) for row in rows] == [("running", 2)]


async def test_keys_of_operators_and_visitors(talking: Site, operators: Database) -> None:
    """A visitor cannot use up an operator's key: the operator's words would be lost."""
    desk = await make_desk(talking.live, operators)
    await talking.send("Hello", key="1")
    path = f"/tenants/{talking.slug}/conversations/{talking.conversation_id}/messages"
    said = await desk.ask("POST", path, json={"text": "Hello"}, headers={"Idempotency-Key": "1"})
    assert said.status_code == 200
    assert "idempotent-replayed" not in said.headers
    assert "operator" in [message["role"] for message in (await talking.history())["messages"]]


async def test_key_that_is_being_stored(
    store: Writer, session: Session, operators: Database, database_url: str
) -> None:
    """A reply that stores its key holds up the message with the same key, and no other."""
    other = await drafts.make_session(operators)
    connection = await log_in(Logins(database_url), APPLICATION)
    await connection.execute("begin")
    await connection.fetch(
        "select * from store_response($1, $2, 'key', $3, '{}')",
        session.tenant_id,
        session.conversation_id,
        REQUEST_HASH,
    )
    writing = asyncio.create_task(drafts.send(store, session, "hello", "key"))
    async with asyncio.timeout(10):
        await drafts.send(store, other, "hello")
    assert not writing.done()
    await connection.execute("commit")
    with pytest.raises(IdempotencyKeyConflict):
        await writing
    await connection.close()
