"""The pool of connections: who waits longest is next, and nobody keeps what is not his.

Seen failing with these defects planted: no turns (newcomers go first), turns that are not given
back, or not when the pool has no connection to give.
"""

import asyncio

import asyncpg
import pytest

from hlas.errors import Unavailable
from hlas.store import db
from hlas.store.db import Database
from hlas.store.logins import APPLICATION, Logins

PEOPLE = 12
QUESTIONS = 10


async def test_turns(database_url: str) -> None:
    """Whoever has been answered and asks again goes behind all who wait."""
    database = await Database.open(Logins(database_url), APPLICATION, size=1)
    answered: list[int] = []

    async def ask(person: int) -> None:
        for _ in range(QUESTIONS):
            # It is while others are at work that newcomers come.
            for _ in range(3):
                await asyncio.sleep(0)
            await database.one("select 1")
            answered.append(person)

    await asyncio.gather(*(ask(person) for person in range(PEOPLE)))
    await database.close()
    rounds = [answered[start : start + PEOPLE] for start in range(0, len(answered), PEOPLE)]
    assert [sorted(people) for people in rounds] == [list(range(PEOPLE))] * QUESTIONS


async def test_turns_come_back(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, a wait that is given up and one that takes too long leave nothing taken."""
    database = await Database.open(Logins(database_url), APPLICATION, size=1)
    for _ in range(3):
        with pytest.raises(asyncpg.PostgresSyntaxError):
            await database.one("selec 1")
        with pytest.raises(asyncpg.PostgresSyntaxError):
            async with database.transaction() as connection:
                await connection.execute("selec 1")
        async with database.transaction():
            waiting = asyncio.create_task(database.one("select 1"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with monkeypatch.context() as patch:
                patch.setattr(db, "ACQUIRE_SECONDS", 0.05)
                with pytest.raises(Unavailable):
                    await database.one("select 1")
    # A pool that gives nothing at all.
    await database._pool.close()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await database.one("select 1")
    async with asyncio.timeout(30):
        await database._turns.acquire()
