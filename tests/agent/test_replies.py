"""Replies: one answer to the last message, once for each key, from a tenant that still stands."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson
import pytest
import pytest_asyncio

from hlas import errors
from hlas.agent import Agent, Answer, Question, replies
from hlas.agent.knowledge import KnowledgeAgent
from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer, Written
from hlas.tenants import tenants
from hlas.visitors import sessions
from hlas.visitors.origins import Origin
from hlas.visitors.sessions import NewSession
from hlas.visitors.tokens import Session, Tokens

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

    async def answer(self, question: Question) -> Answer:
        self.asked.append(question)
        return await self.agent.answer(question)


class Visitor:
    """A visitor of one tenant, and the parts that serve them."""

    def __init__(self, database: Database, writer: Writer, session: Session) -> None:
        self.database = database
        self.writer = writer
        self.session = session
        self.agent = Counting(KnowledgeAgent(database))

    async def say(self, text: str, key: str | None = None) -> Written:
        return await messages.create(self.writer, self.session, NewMessage(text=text), key)

    async def reply(self, key: str | None = None) -> Written:
        return await replies.reply(self.database, self.writer, self.agent, self.session, key)

    async def history(self) -> list[dict[str, Any]]:
        page = await messages.read_history(
            self.database, self.session, limit=100, offset=0, after=None
        )
        found: list[dict[str, Any]] = orjson.loads(page)["messages"]
        return found

    async def answers(self) -> list[dict[str, Any]]:
        return [one for one in await self.history() if one["role"] == "assistant"]


@pytest_asyncio.fixture
async def writer(database_url: str) -> AsyncIterator[Writer]:
    opened = Writer(Logins(database_url), APPLICATION)
    yield opened
    await opened.close()


async def make_visitor(
    operators: Database, database: Database, writer: Writer, slug: str = "shop", **fields: Any
) -> Visitor:
    made = await tenants.add(operators, slug, slug, [f"https://{slug}.example"], **fields)
    await entries.save(operators, made.id, ENTRIES, source="faq.md")
    origin = Origin.parse(f"https://{slug}.example")
    assert origin is not None
    _, session = await sessions.open_session(database, Tokens(Secrets(), 600), origin, NewSession())
    return Visitor(database, writer, session)


@pytest_asyncio.fixture
async def visitor(operators: Database, database: Database, writer: Writer) -> Visitor:
    return await make_visitor(operators, database, writer)


async def test_answer_from_knowledge(visitor: Visitor, operators: Database) -> None:
    """The answer is stored as the assistant's message, and says which entry it comes from."""
    await visitor.say("hello")
    await visitor.say("where is my bill?")
    written = await visitor.reply()
    message = (await visitor.history())[-1]
    entry = (await entries.list_entries(operators, UUID(visitor.session.tenant_id)))[0]
    assert orjson.loads(written.response) == {
        "conversation_id": visitor.session.conversation_id,
        "message_id": message["id"],
        "text": "In the **portal**.",
    }
    assert not written.replayed
    assert (message["role"], message["seq"]) == ("assistant", 3)
    assert message["content"] == "In the **portal**."
    assert message["metadata"] == {
        "reply_to": 2,
        "entries": [str(entry.id)],
        "confidence": 1.0,
        "source": "knowledge",
    }


@pytest.mark.parametrize(
    ("text", "fields", "said"),
    [
        ("what is the weather like?", {}, replies.FALLBACK["en"]),
        ("jaké bude zítra počasí?", {}, replies.FALLBACK["cs"]),
        ("xyzzy", {}, replies.FALLBACK["en"]),
        ("xyzzy", {"ui_config": {"language": "cs"}}, replies.FALLBACK["cs"]),
        ("jaké bude zítra počasí?", {"fallback_text": "Call us."}, "Call us."),
    ],
)
async def test_fallback(
    operators: Database,
    database: Database,
    writer: Writer,
    text: str,
    fields: dict[str, Any],
    said: str,
) -> None:
    """What nobody knows gets the tenant's sentence, or ours in the visitor's language."""
    visitor = await make_visitor(operators, database, writer, **fields)
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
    assert visitor.agent.asked == []
    await visitor.say("when are you open?")
    assert not (await visitor.reply("k")).replayed


async def test_replay(visitor: Visitor) -> None:
    """Edge case 16: a replay is byte-identical, makes no second reply, and asks the agent nothing,
    also after the visitor has said something newer.
    """
    await visitor.say("when are you open?")
    first = await visitor.reply("k")
    await visitor.say("where is my invoice?")
    before = await visitor.history()
    second = await visitor.reply("k")
    assert second == Written(first.response, replayed=True)
    assert len(visitor.agent.asked) == 1
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
    """Edge case 14 for replies: without a key every request makes a reply."""
    await visitor.say("when are you open?")
    for _ in range(2):
        assert not (await visitor.reply()).replayed
    assert len(await visitor.answers()) == 2


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
    """Edge case 9 for replies: an agent that fails stores nothing, and the key stays usable."""

    class Failing:
        async def answer(self, question: Question) -> Answer:
            raise errors.Unavailable

    await visitor.say("when are you open?")
    with pytest.raises(errors.Unavailable):
        await replies.reply(visitor.database, visitor.writer, Failing(), visitor.session, "k")
    assert await visitor.answers() == []
    assert not (await visitor.reply("k")).replayed


async def test_no_connection_is_held(visitor: Visitor, database_url: str) -> None:
    """While the agent works, the pool's only connection is free for others."""

    class Slow:
        async def answer(self, question: Question) -> Answer:
            row = await only.one("select 1 as free")
            assert row is not None
            return Answer("Yes.", "knowledge", 1.0)

    await visitor.say("is anybody there?")
    only = await Database.open(Logins(database_url), APPLICATION, size=1)
    written = await replies.reply(only, visitor.writer, Slow(), visitor.session, None)
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
    assert len(visitor.agent.asked) == 1


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
    assert len(visitor.agent.asked) == 1


async def test_isolation(
    visitor: Visitor, operators: Database, database: Database, writer: Writer
) -> None:
    """Edge case 36 for replies: another tenant's conversation is not found; no agent is asked."""
    other = await make_visitor(operators, database, writer, "other")
    await other.say("when are you open?")
    await other.reply("k")
    stolen = replace(visitor.session, conversation_id=other.session.conversation_id)
    thief = Visitor(database, writer, stolen)
    for key in ("k", None):
        with pytest.raises(errors.ConversationNotFound):
            await thief.reply(key)
    assert thief.agent.asked == []
    assert len(await other.answers()) == 1
