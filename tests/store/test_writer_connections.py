"""Group commit with the connection to the database cut at every moment.

Fails with these defects planted: `_keep_retryable` keeping everything (500 for a message
without a key), `_keep_retryable` keeping nothing (503 instead of the stored answer), no timeout (a
silent database is waited for), every stored response a replay.
"""

import asyncio
from typing import Any

import asyncpg
import pytest

from cables import Cable
from drafts import (
    SECOND_LOOK,
    contents,
    hold_before_commit,
    kill_writers,
    send,
    split,
    wait_for_lock,
)
from hlas import errors
from hlas.store import writer
from hlas.store.db import Database
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session


async def test_answer_lost_after_commit(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """Edge case 7: if the response to a commit is lost, the keyed message is stored once."""
    await send(store, session, "warm", "warm")
    cable.lose_next_answer = True
    outcomes = await asyncio.gather(
        send(store, session, "keyed", "k"),
        send(store, session, "plain"),
        send(store, session, "keyed", "k"),
        return_exceptions=True,
    )
    assert cable.lost == 1
    written, failed = split(outcomes)
    # Without a key a retry might duplicate it, so the client has to decide.
    assert [type(error) for error in failed] == [errors.Unavailable]
    assert [answer.replayed for answer in written] == [False, True]
    assert len({answer.response for answer in written}) == 1
    assert await contents(operators, session) == ["warm", "keyed", "plain"]


async def test_statement_lost(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """Edge case 7: if the statement is lost, the keyed message is written by the next attempt."""
    await send(store, session, "warm")
    cable.lose_next_question = True
    written = await send(store, session, "keyed", "k")
    assert (cable.lost, written.replayed) == (1, False)
    assert await contents(operators, session) == ["warm", "keyed"]


async def test_killed_between_claim_and_commit(
    store: Writer,
    session: Session,
    operators: Database,
    locker: asyncpg.Connection,
    database_url: str,
    postgres_server: Any,
) -> None:
    """Edge cases 4 and 7: if the session dies after the claim, nothing is left; a retry creates."""
    await send(store, session, "warm")
    await hold_before_commit(database_url)
    await locker.execute("select pg_advisory_xact_lock(1)")
    sending = [asyncio.create_task(send(store, session, "hi", "k")) for _ in range(8)]
    await wait_for_lock(operators)
    await kill_writers(operators, postgres_server.superuser_url)
    row = await operators.one("select count(*) as n from idempotency_keys")
    assert row is not None
    assert row["n"] == 0
    await locker.execute("rollback")
    written = await asyncio.gather(*sending)
    assert [answer.replayed for answer in written].count(False) == 1
    assert await contents(operators, session) == ["warm", "hi"]


async def test_every_moment(
    store: Writer,
    session: Session,
    cable: Cable,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Edge case 4: whenever the connection is cut, each key has one row, each caller an answer."""
    # Moments are counted in iterations of the event loop.
    monkeypatch.setattr(writer, "GATHER_SECONDS", 0.0)
    await send(store, session, "warm")
    for number in range(30):
        sending = [
            asyncio.create_task(send(store, session, f"{number}", f"{number}")) for _ in range(4)
        ]
        # From before the statement is sent to after its response: this many iterations.
        for _ in range(number):
            await asyncio.sleep(0)
        cable.cut()
        written = await asyncio.gather(*sending)
        assert [answer.replayed for answer in written].count(False) == 1
    assert await contents(operators, session) == ["warm", *map(str, range(30))]


async def test_silent_database(
    store: Writer,
    session: Session,
    cable: Cable,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If the database does not respond, every caller is answered in time."""
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 0.3)
    cable.silent = True
    first = asyncio.create_task(send(store, session, "a", "a"))
    await asyncio.sleep(SECOND_LOOK)
    second = asyncio.create_task(send(store, session, "b", "b"))
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.Unavailable] * 2
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    cable.silent = False
    cable.cut()
    assert not (await send(store, session, "a", "a")).replayed
    assert await contents(operators, session) == ["warm", "a"]


async def test_database_away(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """While the database is away messages wait, keyed or not; then they are written."""
    await send(store, session, "warm")
    cable.unplugged = True
    cable.cut()
    assert store._connection is not None
    async with asyncio.timeout(30):
        while not store._connection.is_closed():  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(SECOND_LOOK)
    sending = [asyncio.create_task(send(store, session, str(n))) for n in range(5)]
    await asyncio.sleep(5 * SECOND_LOOK)
    assert not any(task.done() for task in sending)
    cable.unplugged = False
    await asyncio.gather(*sending)
    assert await contents(operators, session) == ["warm", *map(str, range(5))]
