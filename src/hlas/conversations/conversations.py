"""Conversations as operators see them: found, read and closed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from hlas.conversations import messages as stored
from hlas.errors import NotFound
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

Status = Literal["open", "closed"]

# How many conversations one search for a text looks through before it reports back.
LOOKED_AT = 1000

FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for; None is anything. Times are when a conversation began."""

    status: Status | None = None
    visitor_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    # Also those that nobody has written in yet.
    empty: bool = True


async def find(
    database: Database,
    tenant_id: UUID,
    search: Search,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[dict[str, Any]], UUID | None]:
    """A page of conversations, newest first, and where the next one starts.

    A page of a search for a text, or without the empty ones, may hold less than `limit`, or
    nothing, and still have a next.
    """
    looked_at = LOOKED_AT if search.text or not search.empty else limit + 1
    rows = await database.all(
        queries.find_conversations,
        tenant_id,
        _first_id(search.since) if search.since else FIRST,
        min(before or LAST, _first_id(search.until) if search.until else LAST),
        search.status,
        search.visitor_id,
        search.text,
        looked_at,
        limit + 1,
        search.empty,
    )
    found = [row for row in rows if row["id"] is not None]
    page = found[:limit]
    following: UUID | None = None
    if len(found) > limit:
        following = page[-1]["id"]
    elif rows[0]["looked_at"] == looked_at:
        following = rows[0]["last_id"]
    return [_summary(row) for row in page], following


async def last_words(
    database: Database, tenant_id: UUID, found: list[dict[str, Any]]
) -> dict[str, str]:
    """The beginning of what the visitor wrote last in each of some conversations."""
    ids = [UUID(one["id"]) for one in found]
    rows = await database.all(queries.last_words, tenant_id, ids)
    return {str(row["conversation_id"]): row["text"] for row in rows}


async def by_id(database: Database, tenant_id: UUID, conversation_id: UUID) -> dict[str, Any]:
    row = await database.one(queries.conversation_by_id, tenant_id, conversation_id)
    return _conversation(row)


async def transcript(
    database: Database, tenant_id: UUID, conversation_id: UUID, *, after: int = 0, limit: int = 50
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of messages, oldest first, and the `after` of the next one."""
    await by_id(database, tenant_id, conversation_id)
    rows = await database.all(queries.messages_of, tenant_id, conversation_id, after, limit + 1)
    page = rows[:limit]
    return [stored.shown(row) for row in page], page[-1]["seq"] if len(rows) > limit else None


async def close(
    database: Database, tenant_id: UUID, conversation_id: UUID, change: Change = COMMAND_LINE
) -> dict[str, Any]:
    """Take no more messages; closing what is closed changes nothing."""
    async with database.transaction() as connection:
        status = await connection.execute(queries.close_conversation, tenant_id, conversation_id)
        row = await connection.fetchrow(queries.conversation_by_id, tenant_id, conversation_id)
        closed = _conversation(row)
        if status == "UPDATE 1":
            before, after = {"status": "open"}, {"status": "closed"}
            target = str(conversation_id)
            await record(connection, change, tenant_id, "conversation.close", target, before, after)
    return closed


def _first_id(moment: datetime) -> UUID:
    """The least UUIDv7 of a moment: ids are in order of time, and the primary key knows them."""
    milliseconds = max(0, int(moment.timestamp() * 1000))
    return UUID(int=min(milliseconds, 2**48 - 1) << 80)


def _summary(row: Row) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "status": row["status"],
        "visitor_id": row["visitor_id"],
        "is_verified": row["is_verified"],
        "origin": row["origin"],
        "messages": row["last_seq"],
        "created_at": row["created_at"],
        "last_message_at": row["last_message_at"],
        "last_message": None
        if row["last_text"] is None
        else {"role": row["last_role"], "text": row["last_text"]},
    }


def _conversation(row: Row | None) -> dict[str, Any]:
    if row is None:
        raise NotFound
    return {
        "id": str(row["id"]),
        "status": row["status"],
        "visitor_id": row["visitor_id"],
        "is_verified": row["is_verified"],
        "origin": row["origin"],
        "metadata": row["meta"],
        "messages": row["last_seq"],
        "created_at": row["created_at"],
        "last_message_at": row["last_message_at"],
    }
