"""Replies: the server answers a visitor's messages once, whoever waits for the answer."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import orjson
import pytest
import pytest_asyncio
import uuid_utils

from hlas import errors
from hlas.agent import Agent, Answer, Listener, Question, replies
from hlas.agent.knowledge import KnowledgeAgent
from hlas.agent.phrases import FALLBACK
from hlas.agent.ranker import Ranker
from hlas.agent.runner import Runner
from hlas.conversations import conversations, messages
from hlas.conversations.frames import Cursor
from hlas.conversations.live import Live
from hlas.conversations.messages import NewMessage
from hlas.conversations.readers import Reader
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.observe.metrics import Metrics
from hlas.operators import sign_ins
from hlas.store.db import Database
from hlas.store.drafts import Written
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer
from hlas.tenants import tenants
from hlas.visitors import sessions
from hlas.visitors.origins import Origin
from hlas.visitors.sessions import NewSession
from hlas.visitors.tokens import Session, Tokens
from streams import Follower

ENTRIES = [
    Entry("Where can I find my invoice?", "In the **portal**.", ("bill",), "en"),
    Entry("When are you open?", "From 9 to 17.", (), "en"),
]


class Secrets:
    _secrets = ("a secret for tests that is long enough",)

    def secrets(self) -> tuple[str, ...]:
        return self._secrets


class Counting:
    """A real agent, and how often it was asked."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.asked: list[Question] = []

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.asked.append(question)
        return await self.agent.answer(question, listener)


class Parts:
    """What serves visitors, put together as in the service."""

    def __init__(self, url: str, database: Database, operators: Database) -> None:
        self.database = database
        self.live = Live(str(uuid_utils.uuid4()))
        self.live.connect(database, operators, partial(sign_ins.find_valid, operators))
        self.writer = Writer(Logins(url), APPLICATION, worker=self.live.worker)
        self.agent = Counting(KnowledgeAgent(Ranker(database)))
        self.runner = self.writer.listener = Runner(
            self.live, self.writer, self.agent, database, operators, Metrics()
        )


class Visitor:
    """A visitor of one tenant, and the parts that serve them."""

    def __init__(self, parts: Parts, session: Session) -> None:
        self.parts = parts
        self.session = session

    @property
    def asked(self) -> list[Question]:
        return self.parts.agent.asked

    async def say(self, text: str, key: str | None = None) -> Written:
        return await messages.create(self.parts.writer, self.session, NewMessage(text=text), key)

    async def reply(self, key: str | None = None) -> Written:
        parts = self.parts
        start = parts.runner.answer_unanswered
        return await replies.reply(parts.database, parts.live, start, self.session, key)

    async def history(self) -> list[dict[str, Any]]:
        page = await messages.read_history(
            self.parts.database, self.session, limit=100, offset=0, after=None
        )
        found: list[dict[str, Any]] = orjson.loads(page)["messages"]
        return found

    async def answers(self) -> list[dict[str, Any]]:
        return [one for one in await self.history() if one["role"] == "assistant"]


@pytest_asyncio.fixture
async def parts(database_url: str, database: Database, operators: Database) -> AsyncIterator[Parts]:
    opened = Parts(database_url, database, operators)
    yield opened
    await opened.runner.finish()
    await opened.writer.close()
    await opened.live.close()


async def make_visitor(
    operators: Database, parts: Parts, slug: str = "shop", **fields: Any
) -> Visitor:
    made = await tenants.add(operators, slug, slug, [f"https://{slug}.example"], **fields)
    await entries.save(operators, made.id, ENTRIES, source="faq.md")
    origin = Origin.parse(f"https://{slug}.example")
    assert origin is not None
    _, session = await sessions.open_session(
        parts.database, Tokens(Secrets(), 600), origin, NewSession()
    )
    return Visitor(parts, session)


@pytest_asyncio.fixture
async def visitor(operators: Database, parts: Parts) -> Visitor:
    return await make_visitor(operators, parts)


async def test_answer_from_knowledge(visitor: Visitor, operators: Database) -> None:
    """The answer is stored as the assistant's message, and says which entry it comes from."""
    await visitor.say("hello")
    await visitor.reply()
    await visitor.say("Where can I find my invoice?")
    written = await visitor.reply()
    message = (await visitor.history())[-1]
    entry = (await entries.list_entries(operators, UUID(visitor.session.tenant_id)))[0]
    assert orjson.loads(written.response) == {
        "conversation_id": visitor.session.conversation_id,
        "message_id": message["id"],
        "text": "In the **portal**.",
        "source": "knowledge",
        "suggestions": [],
    }
    assert not written.replayed
    assert (message["role"], message["seq"]) == ("assistant", 4)
    assert message["content"] == "In the **portal**."
    assert 0.5 < message["metadata"]["confidence"] <= 1
    assert message["metadata"] == {
        "reply_to": 3,
        "entries": [str(entry.id)],
        "confidence": message["metadata"]["confidence"],
        "source": "knowledge",
        "suggestions": [],
    }


async def test_quick_questions(visitor: Visitor) -> None:
    """Edge case 58: whatever the timing, every one of several quick questions is answered."""
    questions = ("when are you open?", "Where can I find my invoice?", "hello")
    await asyncio.gather(*(visitor.say(text) for text in questions))
    # The one that was committed last is in the last answer; an earlier one may have its own.
    await visitor.reply()
    said = "\n".join(one["content"] for one in await visitor.answers())
    assert "In the **portal**." in said
    assert "From 9 to 17." in said


async def test_closed_browser(visitor: Visitor) -> None:
    """Edge case 57: nobody waits for the answer, and it is stored all the same."""
    await visitor.say("when are you open?")
    async with asyncio.timeout(30):
        while not await visitor.answers():  # noqa: ASYNC110  # polls the database
            await asyncio.sleep(0.01)
    [answer] = await visitor.answers()
    assert answer["content"] == "From 9 to 17."


@pytest.mark.parametrize(
    ("text", "fields", "said"),
    [
        ("what is the weather like?", {}, FALLBACK["en"]),
        ("jaké bude zítra počasí?", {}, FALLBACK["cs"]),
        ("xyzzy", {}, FALLBACK["en"]),
        ("xyzzy", {"ui_config": {"language": "cs"}}, FALLBACK["cs"]),
        ("jaké bude zítra počasí?", {"fallback_text": "Call us."}, "Call us."),
    ],
)
async def test_fallback(
    operators: Database,
    parts: Parts,
    text: str,
    fields: dict[str, Any],
    said: str,
) -> None:
    """What nobody knows gets the tenant's sentence, or ours in the visitor's language."""
    visitor = await make_visitor(operators, parts, **fields)
    await visitor.say(text)
    await visitor.reply()
    message = (await visitor.history())[-1]
    assert message["content"] == said
    assert message["metadata"]["source"] == "fallback"
    assert message["metadata"]["entries"] == []
    assert message["metadata"]["confidence"] < 0.45


async def test_nothing_to_answer(visitor: Visitor) -> None:
    """A conversation without a visitor's message has nothing to answer; the key stays usable."""
    with pytest.raises(errors.UserMessageNotFound):
        await visitor.reply("k")
    assert visitor.asked == []
    await visitor.say("when are you open?")
    assert not (await visitor.reply("k")).replayed


async def test_replay(visitor: Visitor) -> None:
    """Edge case 16: a replay is byte-identical, makes no second reply, and asks the agent nothing,
    also after the visitor has said something newer.
    """
    await visitor.say("when are you open?")
    first = await visitor.reply("k")
    await visitor.say("Where can I find my invoice?")
    await visitor.reply()
    before = await visitor.history()
    second = await visitor.reply("k")
    assert second == Written(first.response, replayed=True)
    assert len(visitor.asked) == 2
    assert await visitor.history() == before
    assert orjson.loads((await visitor.reply("other")).response)["text"] == "In the **portal**."


async def test_concurrent_replies(visitor: Visitor) -> None:
    """Edge case 1 for replies: 16 at once with one key end with one reply and 16 equal bodies."""
    await visitor.say("when are you open?")
    written = await asyncio.gather(*(visitor.reply("k") for _ in range(16)))
    assert len({one.response for one in written}) == 1
    assert sum(one.replayed for one in written) == 15
    assert len(await visitor.answers()) == 1


async def test_without_key(visitor: Visitor) -> None:
    """Edge case 55: whoever asks again gets the answer that is there; no second one is made."""
    await visitor.say("when are you open?")
    first = await visitor.reply()
    assert await visitor.reply() == first == Written(first.response, replayed=False)
    assert len(visitor.asked) == len(await visitor.answers()) == 1


async def test_key_of_a_message(visitor: Visitor) -> None:
    """One key for a message and for a reply is a conflict, whichever came first."""
    await visitor.say("when are you open?", key="message")
    with pytest.raises(errors.IdempotencyKeyConflict):
        await visitor.reply("message")
    await visitor.reply("reply")
    with pytest.raises(errors.IdempotencyKeyConflict):
        await visitor.say("when are you open?", key="reply")
    assert [one["role"] for one in await visitor.history()] == ["user", "assistant"]


async def test_failed_agent(visitor: Visitor) -> None:
    """An agent that fails does not leave the visitor without an answer."""

    class Failing:
        async def answer(self, question: Question, listener: Listener) -> Answer:
            raise ValueError("a defect")

    visitor.parts.agent.agent = Failing()
    await visitor.say("when are you open?")
    written = await visitor.reply("k")
    assert orjson.loads(written.response)["text"] == FALLBACK["en"]
    assert orjson.loads(written.response)["source"] == "fallback"


async def test_agent_that_fails_in_mid_answer(visitor: Visitor) -> None:
    """What was said is withdrawn, and readers see the answer that is stored."""

    class Failing:
        async def answer(self, question: Question, listener: Listener) -> Answer:
            listener.say("Hello wor")
            while b"Hello wor" not in screen.seen:  # noqa: ASYNC110  # served in the background
                await asyncio.sleep(0.01)
            raise ValueError("a defect")

    class Screen:
        seen = b""
        unsent = 0

        def write(self, data: bytes) -> None:
            self.seen += data

        def close(self) -> None: ...

    visitor.parts.agent.agent = Failing()
    session, screen, client = visitor.session, Screen(), Follower()
    reader = Reader((session.tenant_id, session.conversation_id), Cursor(0))
    visitor.parts.live.open(reader, screen)
    await visitor.say("when are you open?")
    await visitor.reply()
    async with asyncio.timeout(30):
        while b'"assistant"' not in screen.seen:  # noqa: ASYNC110  # served in the background
            await asyncio.sleep(0.01)
    client.feed(screen.seen)
    assert client.resets == 1
    assert client.text == ""
    assert client.messages[1]["content"] == FALLBACK["en"]


class Busy:
    """Never answers."""

    async def answer(self, question: Question, listener: Listener) -> Answer:
        await asyncio.sleep(60)
        raise AssertionError


async def test_answer_that_takes_too_long(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits longer than a request may take is told to ask again, not that we failed."""
    monkeypatch.setattr(replies, "WAIT_SECONDS", 0.2)
    visitor.parts.agent.agent = Busy()
    await visitor.say("when are you open?")
    with pytest.raises(errors.Unavailable):
        await visitor.reply()


async def test_handed_back_without_a_word(visitor: Visitor, operators: Database) -> None:
    """What was asked before and during a takeover is answered once the agent is back."""
    session, agent = visitor.session, visitor.parts.agent
    conversation = UUID(session.tenant_id), UUID(session.conversation_id)
    knowledge, agent.agent = agent.agent, Busy()
    await visitor.say("when are you open?")
    await conversations.set_handler(operators, *conversation, "human")
    await visitor.say("Where can I find my invoice?")
    agent.agent = knowledge
    await conversations.set_handler(operators, *conversation, "agent")
    visitor.parts.live.touch(session.tenant_id, session.conversation_id)
    written = await visitor.reply()
    assert "From 9 to 17." in written.response
    assert "In the **portal**." in written.response
    assert [one["metadata"]["reply_to"] for one in await visitor.answers()] == [2]


async def test_answered_by_a_person(visitor: Visitor, operators: Database) -> None:
    """After a person has answered and handed back, nothing waits for an answer."""
    session = visitor.session
    conversation = UUID(session.tenant_id), UUID(session.conversation_id)
    await conversations.set_handler(operators, *conversation, "human")
    await visitor.say("Where can I find my invoice?")
    answer = NewMessage(text="Here it is.")
    await messages.create_as_operator(
        visitor.parts.writer, session.tenant_id, session.conversation_id, answer, None
    )
    await conversations.set_handler(operators, *conversation, "agent")
    with pytest.raises(errors.UserMessageNotFound):
        await visitor.reply()
    assert visitor.asked == []


async def test_no_connection_is_held(visitor: Visitor, database_url: str) -> None:
    """While the agent works, the pool's only connection is free for others."""

    class Slow:
        async def answer(self, question: Question, listener: Listener) -> Answer:
            row = await only.one("select 1 as free")
            assert row is not None
            return Answer("Yes.", "knowledge", 1.0)

    only = await Database.open(Logins(database_url), APPLICATION, size=1)
    visitor.parts.agent.agent = Slow()
    visitor.parts.runner._database = visitor.parts.database = only
    await visitor.say("is anybody there?")
    written = await visitor.reply()
    await only.close()
    assert orjson.loads(written.response)["text"] == "Yes."


async def test_closed_conversation(visitor: Visitor, operators: Database) -> None:
    """A closed conversation gets no new reply; what was stored before is still replayed."""
    await visitor.say("when are you open?")
    await visitor.reply("k")
    await operators.execute("update conversations set status = 'closed'")
    assert (await visitor.reply("k")).replayed
    with pytest.raises(errors.ConversationClosed):
        await visitor.reply("new")
    assert len(visitor.asked) == 1


async def test_standing(visitor: Visitor, operators: Database) -> None:
    """Edge case 40 for replies: a signed-out or disabled tenant's session ends, replays too."""
    await visitor.say("when are you open?")
    await visitor.reply("k")
    await tenants.sign_out(operators, "shop")
    with pytest.raises(errors.SessionRevoked):
        await visitor.reply("k")
    await tenants.set_active(operators, "shop", active=False)
    with pytest.raises(errors.TenantInactive):
        await visitor.reply("k")
    assert len(visitor.asked) == 1


async def test_isolation(visitor: Visitor, operators: Database, parts: Parts) -> None:
    """Edge case 36 for replies: another tenant's conversation is not found; no agent is asked."""
    other = await make_visitor(operators, parts, "other")
    await other.say("when are you open?")
    await other.reply("k")
    stolen = replace(visitor.session, conversation_id=other.session.conversation_id)
    thief = Visitor(parts, stolen)
    for key in ("k", None):
        with pytest.raises(errors.ConversationNotFound):
            await thief.reply(key)
    assert len(parts.agent.asked) == 1
