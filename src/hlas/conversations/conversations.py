"""Conversations as administrators see them: search, read, take over, hand back, close."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

import asyncpg
from pydantic import Field

from hlas.conversations import runs
from hlas.conversations.contacts import Contact
from hlas.conversations.messages import Role
from hlas.conversations.ratings import Rating
from hlas.errors import NotFound
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.tenants.tenants import Handler

queries = Queries.beside(__file__)

Status = Literal["open", "closed"]

# How many conversations one page of a text search examines at most.
EXAMINED = 1000

FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)

PersonWanted = Annotated[
    datetime | None,
    Field(description="when the visitor, or the agent for them, asked for a person"),
]
Verified = Annotated[bool, Field(description="whether the tenant signed the visitor's id")]


@dataclass(frozen=True, slots=True)
class LastMessage:
    role: Role
    text: Annotated[str, Field(description="its first 160 characters")]


@dataclass(frozen=True, slots=True)
class Summary:
    """A conversation in a list."""

    id: UUID
    status: Status
    handler: Handler
    visitor_id: str | None
    is_verified: Verified
    origin: str
    messages: int
    created_at: datetime
    last_message_at: datetime | None
    last_message: LastMessage | None
    person_wanted_at: PersonWanted

    @classmethod
    def from_row(cls, row: Row) -> Self:
        has_message = row["last_text"] is not None
        return cls(
            id=UUID(str(row["id"])),
            status=row["status"],
            handler=row["handler"],
            visitor_id=row["visitor_id"],
            is_verified=row["is_verified"],
            origin=row["origin"],
            messages=row["last_seq"],
            created_at=row["created_at"],
            last_message_at=row["last_message_at"],
            last_message=LastMessage(row["last_role"], row["last_text"]) if has_message else None,
            person_wanted_at=row["person_wanted_at"],
        )


@dataclass(frozen=True, slots=True)
class Conversation:
    id: UUID
    status: Status
    handler: Annotated[Handler, Field(description="who answers")]
    visitor_id: str | None
    is_verified: Verified
    origin: str
    metadata: dict[str, object]
    messages: int
    created_at: datetime
    last_message_at: datetime | None
    person_wanted_at: PersonWanted
    contact: Annotated[Contact, Field(description="how the visitor wants to be reached")]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            status=row["status"],
            handler=row["handler"],
            visitor_id=row["visitor_id"],
            is_verified=row["is_verified"],
            origin=row["origin"],
            metadata=row["meta"],
            messages=row["last_seq"],
            created_at=row["created_at"],
            last_message_at=row["last_message_at"],
            person_wanted_at=row["person_wanted_at"],
            contact=Contact.from_json(row["contact"]),
        )


@dataclass(frozen=True, slots=True)
class Message:
    id: UUID
    seq: int
    role: Role
    content: str
    metadata: dict[str, object]
    created_at: datetime
    rating: Annotated[Rating | None, Field(description="what the visitor thinks of it")]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            seq=row["seq"],
            role=row["role"],
            content=row["content"],
            metadata=row["meta"],
            created_at=row["created_at"],
            rating=Rating.from_row(row),
        )


@dataclass(frozen=True, slots=True)
class Search:
    """Filters; None matches everything. Times are when a conversation started."""

    status: Status | None = None
    visitor_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    # Whether conversations without messages match.
    empty: bool = True


async def find(
    database: Database,
    tenant_id: UUID,
    search: Search,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[Summary], UUID | None]:
    """A page of conversations, newest first, and the cursor of the next page.

    When the search has a text or skips empty conversations, a page may have fewer than `limit`
    conversations, or none, although there is a next page.
    """
    examined = EXAMINED if search.text or not search.empty else limit + 1
    rows = await database.all(
        queries.find_conversations,
        tenant_id,
        _first_id(search.since) if search.since else FIRST,
        min(before or LAST, _first_id(search.until) if search.until else LAST),
        search.status,
        search.visitor_id,
        search.text,
        examined,
        limit + 1,
        search.empty,
    )
    found = [row for row in rows if row["id"] is not None]
    page = [Summary.from_row(row) for row in found[:limit]]
    following: UUID | None = None
    if len(found) > limit:
        following = page[-1].id
    elif rows[0]["examined"] == examined:
        following = rows[0]["last_id"]
    return page, following


async def find_last_words(
    database: Database, tenant_id: UUID, conversations: list[Summary]
) -> dict[UUID, str]:
    """The start of the visitor's last message in each of the conversations."""
    ids = [conversation.id for conversation in conversations]
    rows = await database.all(queries.last_words, tenant_id, ids)
    return {row["conversation_id"]: row["text"] for row in rows}


async def find_conversation(
    database: Database, tenant_id: UUID, conversation_id: UUID
) -> Conversation:
    return _require(await database.one(queries.conversation_by_id, tenant_id, conversation_id))


async def read_messages(
    database: Database, tenant_id: UUID, conversation_id: UUID, *, after: int = 0, limit: int = 50
) -> tuple[list[Message], int | None]:
    """A page of messages, oldest first, and the `after` of the next page."""
    await find_conversation(database, tenant_id, conversation_id)
    rows = await database.all(queries.messages_of, tenant_id, conversation_id, after, limit + 1)
    page = [Message.from_row(row) for row in rows[:limit]]
    return page, page[-1].seq if len(rows) > limit else None


async def close(
    database: Database, tenant_id: UUID, conversation_id: UUID, change: Change = COMMAND_LINE
) -> Conversation:
    """Accept no more messages; closing a closed conversation changes nothing."""
    async with database.transaction() as connection:
        status = await connection.execute(queries.close_conversation, tenant_id, conversation_id)
        # Their answer could not be stored any more.
        await runs.cancel(connection, tenant_id, conversation_id)
        row = await connection.fetchrow(queries.conversation_by_id, tenant_id, conversation_id)
        closed = _require(row)
        if status == "UPDATE 1":
            before, after = {"status": "open"}, {"status": "closed"}
            target = str(conversation_id)
            await record(connection, change, tenant_id, "conversation.close", target, before, after)
    return closed


async def set_handler(
    database: Database,
    tenant_id: UUID,
    conversation_id: UUID,
    handler: Handler,
    change: Change = COMMAND_LINE,
) -> Conversation:
    """Take a conversation over, or hand it back. No answer of a run from before can follow."""
    async with database.transaction() as connection:
        before = await connection.fetchval(queries.lock_conversation, tenant_id, conversation_id)
        if before is not None and before != handler:
            await connection.execute(queries.set_handler, tenant_id, conversation_id, handler)
            await runs.cancel(connection, tenant_id, conversation_id)
            await _record_handler(connection, change, tenant_id, conversation_id, before, handler)
        if before is not None and handler == "agent":
            # In this transaction: nobody would start it if this process ended now.
            await runs.start_within(connection, tenant_id, conversation_id)
        row = await connection.fetchrow(queries.conversation_by_id, tenant_id, conversation_id)
    return _require(row)


async def record_takeover(
    database: Database, tenant_id: UUID, conversation_id: UUID, change: Change
) -> None:
    """Record a takeover by an operator's message, which the writer has stored."""
    async with database.transaction() as connection:
        await _record_handler(connection, change, tenant_id, conversation_id, "agent", "human")


async def _record_handler(
    connection: asyncpg.Connection,
    change: Change,
    tenant_id: UUID,
    conversation_id: UUID,
    before: Handler,
    after: Handler,
) -> None:
    await record(
        connection,
        change,
        tenant_id,
        "conversation.handler",
        str(conversation_id),
        {"handler": before},
        {"handler": after},
    )


def _first_id(moment: datetime) -> UUID:
    """The smallest UUIDv7 of a moment: ids are in order of time, so the primary key is used."""
    milliseconds = max(0, int(moment.timestamp() * 1000))
    return UUID(int=min(milliseconds, 2**48 - 1) << 80)


def _require(row: Row | None) -> Conversation:
    if row is None:
        raise NotFound
    return Conversation.from_row(row)
