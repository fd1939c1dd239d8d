"""Visitors' data for those whose it is: exported, erased, or no longer anybody's."""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from hlas.store.db import Database, Queries, Row
from hlas.tenants import tenants
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

# What one transaction touches: milliseconds, which no visitor notices.
BATCH_MESSAGES = 200
BATCH_CONVERSATIONS = 100
PAGE = 500
# Visitors come first: after each page or batch we rest so many times as long as it took.
REST = 2.0

Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose data: all of a tenant's, one visitor's, or one conversation."""

    tenant_id: UUID
    visitor_id: str | None = None
    conversation_id: UUID | None = None

    @property
    def arguments(self) -> tuple[UUID, str | None, UUID | None]:
        return self.tenant_id, self.visitor_id, self.conversation_id

    @property
    def target(self) -> str:
        """As the audit names it: never by the visitor's own id, nor by a hash one could guess."""
        if self.conversation_id is not None:
            return f"conversation {self.conversation_id}"
        return "visitor" if self.visitor_id is not None else "tenant"


@dataclass(slots=True)
class Count:
    conversations: int = 0
    messages: int = 0

    def add(self, conversations: int, messages: int) -> None:
        self.conversations += conversations
        self.messages += messages

    def __bool__(self) -> bool:
        return bool(self.conversations or self.messages)

    def told(self) -> dict[str, int]:
        return {"conversations": self.conversations, "messages": self.messages}


async def subject(
    operators: Database, slug: str, visitor_id: str | None = None, conversation: UUID | None = None
) -> Subject:
    tenant = await tenants.by_slug(operators, slug)
    return Subject(UUID(tenant["id"]), visitor_id, conversation)


async def size(operators: Database, whose: Subject) -> Count:
    row = await operators.one(queries.size, *whose.arguments)
    return Count(row["conversations"], row["messages"]) if row else Count()


async def export(
    operators: Database,
    whose: Subject,
    *,
    anonymous: bool = False,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> AsyncIterator[bytes]:
    """JSON Lines: each conversation, then its messages; a page at a time is all that is in memory.

    Anonymous: a visitor's id becomes a pseudonym that holds within this export and nowhere else.
    """
    name = _pseudonyms() if anonymous else _same
    done = Count()
    async for some in _conversations(operators, whose):
        messages = _messages(operators, whose.tenant_id, [row["id"] for row in some])
        message = await anext(messages, None)
        for conversation in some:
            yield _line(_conversation(conversation, name, anonymous=anonymous))
            done.add(1, 0)
            while message is not None and message["conversation_id"] == conversation["id"]:
                yield _line(_message(message, anonymous=anonymous))
                done.add(0, 1)
                on_progress(1)
                message = await anext(messages, None)
    async with operators.transaction() as connection:
        await record(
            connection, change, whose.tenant_id, "privacy.export", whose.target, after=done.told()
        )


async def _conversations(operators: Database, whose: Subject) -> AsyncIterator[list[Row]]:
    """In groups whose messages fit into a page, or one alone that has more."""
    after = None
    while True:
        page = await _page(
            operators,
            queries.export_conversations,
            whose.tenant_id,
            whose.visitor_id,
            after,
            limit=PAGE,
        )
        group: list[Row] = []
        for row in page:
            if group and sum(one["last_seq"] for one in group) + row["last_seq"] > PAGE:
                yield group
                group = []
            group.append(row)
        if group:
            yield group
        if len(page) < PAGE:
            return
        after = page[-1]["id"]


async def _messages(
    operators: Database, tenant_id: UUID, conversations: list[UUID]
) -> AsyncIterator[Row]:
    """By conversation and seq; of several all at once, since they may have grown meanwhile."""
    after = 0
    limit = PAGE if len(conversations) == 1 else None
    while True:
        page = await _page(
            operators, queries.export_messages, tenant_id, conversations, after, limit=limit
        )
        for row in page:
            yield row
        if limit is None or len(page) < limit:
            return
        after = page[-1]["seq"]


async def _page(
    operators: Database, query: str, *arguments: Any, limit: int | None = None
) -> list[Row]:
    started = time.monotonic()
    rows = await operators.all(query, *arguments, limit)
    await _rest(started)
    return rows


async def _rest(since: float) -> None:
    await asyncio.sleep(REST * (time.monotonic() - since))


def _same(visitor_id: str) -> str:
    return visitor_id


def _pseudonyms() -> Callable[[str], str]:
    # The key is thrown away with the export: without it nobody can try ids until one fits.
    key = secrets.token_bytes(32)
    return lambda visitor_id: hmac.new(key, visitor_id.encode(), hashlib.sha256).hexdigest()[:24]


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _conversation(row: Row, name: Callable[[str], str], *, anonymous: bool) -> dict[str, Any]:
    return {
        "type": "conversation",
        "id": str(row["id"]),
        "status": row["status"],
        "visitor_id": name(row["visitor_id"]) if row["visitor_id"] else None,
        "is_verified": row["is_verified"],
        "origin": row["origin"],
        "metadata": {} if anonymous else row["meta"],
        "created_at": row["created_at"],
        "last_message_at": row["last_message_at"],
    }


def _message(row: Row, *, anonymous: bool) -> dict[str, Any]:
    return {
        "type": "message",
        "conversation_id": str(row["conversation_id"]),
        "id": str(row["id"]),
        "seq": row["seq"],
        "role": row["role"],
        "content": row["content"],
        "metadata": {} if anonymous and row["role"] == "user" else row["meta"],
        "created_at": row["created_at"],
    }


async def erase(
    operators: Database,
    whose: Subject,
    *,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> Count:
    """Delete conversations with all that belongs to them, in short transactions.

    Stopped half-way it leaves closed conversations, and doing it again deletes the rest.
    """
    await operators.execute(queries.close_conversations, *whose.arguments)

    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        rows = await connection.fetch(queries.next_to_erase, *whose.arguments, BATCH_CONVERSATIONS)
        before = done.messages
        await remove_some(connection, rows, done)
        on_progress(done.messages - before)
        return bool(rows)

    return await in_batches(operators, batch, change, whose, "privacy.erase")


async def remove_some(connection: asyncpg.Connection, rows: Sequence[Row], done: Count) -> None:
    """Of these locked conversations, those that fit into one batch; of a huge one, its end."""
    fitting: list[Row] = []
    messages = 0
    for row in rows:
        if messages + row["last_seq"] > BATCH_MESSAGES:
            break
        messages += row["last_seq"]
        fitting.append(row)
    if fitting:
        await connection.execute(
            queries.remove_conversations,
            [row["tenant_id"] for row in fitting],
            [row["id"] for row in fitting],
        )
        done.add(len(fitting), messages)
    elif rows:
        huge = rows[0]
        left = huge["last_seq"] - BATCH_MESSAGES
        await connection.execute(
            queries.shorten_conversation, huge["tenant_id"], huge["id"], left, BATCH_MESSAGES
        )
        done.add(0, BATCH_MESSAGES)


async def anonymise(
    operators: Database,
    whose: Subject,
    *,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> Count:
    """Forget whose conversations these are, and keep what was said."""
    after: UUID | None = None
    # The part of one long conversation that was done in earlier batches.
    seen = 0

    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        nonlocal after, seen
        row = await connection.fetchrow(queries.next_to_anonymise, *whose.arguments, after)
        if row is None:
            return False
        until = min(seen + BATCH_MESSAGES, row["last_seq"])
        await connection.execute(queries.forget_metadata, whose.tenant_id, row["id"], seen, until)
        done.add(0, until - seen)
        on_progress(until - seen)
        seen = until
        if until == row["last_seq"]:
            await connection.execute(queries.forget_visitor, whose.tenant_id, row["id"])
            done.add(1, 0)
            after, seen = row["id"], 0
        return True

    return await in_batches(operators, batch, change, whose, "privacy.anonymise")


async def in_batches(
    operators: Database,
    batch: Callable[[asyncpg.Connection, Count], Awaitable[bool]],
    change: Change,
    whose: Subject,
    action: str,
) -> Count:
    """One short transaction after another, with a rest after each.

    The audit gets one row with the counts, in the transaction that finds nothing left to do.
    """
    done = Count()
    try:
        while True:
            started = time.monotonic()
            async with operators.transaction() as connection:
                counted = Count(done.conversations, done.messages)
                more = await batch(connection, counted)
                if not more and counted:
                    await _tell(connection, change, whose, action, counted)
            done = counted
            if not more:
                return done
            await _rest(started)
    except BaseException:
        if done:
            async with operators.transaction() as connection:
                await _tell(connection, change, whose, action, done)
        raise


async def _tell(
    connection: asyncpg.Connection, change: Change, whose: Subject, action: str, done: Count
) -> None:
    await record(connection, change, whose.tenant_id, action, whose.target, after=done.told())
