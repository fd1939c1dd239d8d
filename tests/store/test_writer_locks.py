"""Group commit beside another process that writes to the same conversations.

Fails with these defects planted: `held` left null and `skip locked` removed (waits in the
database), always requeued at the front (a full batch of locked ones delays the rest).
"""

import asyncio

import asyncpg

from drafts import LOCK, SECOND_LOOK, contents, count_waiting, make_session, send
from factories import run_out_of_patience
from hlas import errors
from hlas.store import writer
from hlas.store.db import Database
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session


async def test_locked_conversation(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """A conversation locked by another process is retried; the others do not wait."""
    other = await make_session(operators, session.tenant_id)
    await locker.execute(LOCK, session.conversation_id)
    stuck = [asyncio.create_task(send(store, session, str(n), f"{n}")) for n in range(3)]
    async with asyncio.timeout(30):
        # The connection is kept, and no statement waits in the database, which would delay others.
        for number in range(20):
            await send(store, other, str(number))
    assert not any(task.done() for task in stuck)
    await locker.execute("rollback")
    await asyncio.gather(*stuck)
    assert await contents(operators, session) == ["0", "1", "2"]
    assert await contents(operators, other) == [str(number) for number in range(20)]


async def test_nothing_blocks_on_a_locked_conversation(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """A batch of only locked conversations returns at once, too."""
    await send(store, session, "warm")
    await locker.execute(LOCK, session.conversation_id)
    sending = asyncio.create_task(send(store, session, "later", "k"))
    for _ in range(20):
        await asyncio.sleep(SECOND_LOOK)
        assert await count_waiting(operators) == 0
    await locker.execute("rollback")
    await sending


async def test_full_batch_of_locked_ones(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """More than a batch waits for one busy conversation: the others are still written."""
    other = await make_session(operators, session.tenant_id)
    await locker.execute(LOCK, session.conversation_id)
    count = 2 * writer.BATCH_ROWS
    stuck = [asyncio.create_task(send(store, session, "x")) for _ in range(count)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await send(store, other, "through")
    assert not any(task.done() for task in stuck)
    await locker.execute("rollback")
    await asyncio.gather(*stuck)
    assert len(await contents(operators, session)) == count


async def test_lock_timeout(store: Writer, session: Session, locker: asyncpg.Connection) -> None:
    """Edge case 18: after the lock timeout keyed requests get 409, those without a key 503."""
    await locker.execute(LOCK, session.conversation_id)
    sending = asyncio.gather(
        send(store, session, "hi", "k"),
        send(store, session, "hi", "k"),
        send(store, session, "hi"),
        return_exceptions=True,
    )
    await run_out_of_patience(store, 3)
    kinds = [type(outcome) for outcome in await sending]
    assert kinds == [errors.IdempotencyInProgress, errors.IdempotencyInProgress, errors.Unavailable]
    # Drafts that were answered during a statement are removed when it ends.
    async with asyncio.timeout(20):
        while store.depth:  # noqa: ASYNC110  # the writer has no event for it
            await asyncio.sleep(0.01)
