"""Erase or anonymise conversations, in short transactions."""

import time
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import asyncpg

from hlas.privacy.subjects import Count, Progress, Subject, rest
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

# Rows of one transaction: it takes milliseconds, which no visitor notices.
BATCH_MESSAGES = 200
BATCH_CONVERSATIONS = 100


async def erase(
    operators: Database,
    subject: Subject,
    *,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> Count:
    """Delete conversations with their messages and keys.

    If it is interrupted, the remaining conversations are closed; run it again to delete them.
    """
    await operators.execute(queries.close_conversations, *subject.arguments)

    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        rows = await connection.fetch(
            queries.next_to_erase, *subject.arguments, BATCH_CONVERSATIONS
        )
        before = done.messages
        await remove_some(connection, rows, done)
        on_progress(done.messages - before)
        return bool(rows)

    return await in_batches(operators, batch, change, subject, "privacy.erase")


async def remove_some(connection: asyncpg.Connection, rows: Sequence[Row], done: Count) -> None:
    """Delete the locked conversations that fit into one batch, or the end of one that does not."""
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
    subject: Subject,
    *,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> Count:
    """Remove the visitors' ids and metadata, and keep the text."""
    after: UUID | None = None
    # How many messages of the current conversation earlier batches have done.
    seen = 0

    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        nonlocal after, seen
        row = await connection.fetchrow(queries.next_to_anonymise, *subject.arguments, after)
        if row is None:
            return False
        until = min(seen + BATCH_MESSAGES, row["last_seq"])
        await connection.execute(queries.forget_metadata, subject.tenant_id, row["id"], seen, until)
        done.add(0, until - seen)
        on_progress(until - seen)
        seen = until
        if until == row["last_seq"]:
            await connection.execute(queries.forget_visitor, subject.tenant_id, row["id"])
            done.add(1, 0)
            after, seen = row["id"], 0
        return True

    return await in_batches(operators, batch, change, subject, "privacy.anonymise")


async def in_batches(
    operators: Database,
    batch: Callable[[asyncpg.Connection, Count], Awaitable[bool]],
    change: Change,
    subject: Subject,
    action: str,
) -> Count:
    """Run short transactions until `batch` has nothing left to do, with a rest after each.

    The counts are recorded once, in the last transaction.
    """
    done = Count()
    try:
        while True:
            started = time.monotonic()
            async with operators.transaction() as connection:
                counted = Count(done.conversations, done.messages)
                more = await batch(connection, counted)
                if not more and counted:
                    await _record(connection, change, subject, action, counted)
            done = counted
            if not more:
                return done
            await rest(started)
    except BaseException:
        if done:
            async with operators.transaction() as connection:
                await _record(connection, change, subject, action, done)
        raise


async def _record(
    connection: asyncpg.Connection, change: Change, subject: Subject, action: str, done: Count
) -> None:
    await record(
        connection, change, subject.tenant_id, action, subject.target, after=done.to_dict()
    )
