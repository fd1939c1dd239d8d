"""The connection pool: the longest waiter is next, and every connection is returned.

Fails with these defects planted: no queue (new callers go first), turns that are not
returned, or not when the pool has no connection to give.
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
    """A connection goes to the longest waiter; a caller that asks again goes to the end."""
    database = await Database.open(Logins(database_url), APPLICATION, size=1)
    answered: list[int] = []

    async def ask(person: int) -> None:
        for _ in range(QUESTIONS):
            # New callers arrive while others work.
            for _ in range(3):
                await asyncio.sleep(0)
            await database.one("select 1")
            answered.append(person)

    await asyncio.gather(*(ask(person) for person in range(PEOPLE)))
    await database.close()
    rounds = [answered[start : start + PEOPLE] for start in range(0, len(answered), PEOPLE)]
    assert [sorted(people) for people in rounds] == [list(range(PEOPLE))] * QUESTIONS


async def test_turns_come_back(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error, a cancelled wait and a timeout return their turn."""
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
    # A pool that has no connection to give.
    await database._pool.close()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await database.one("select 1")
    async with asyncio.timeout(30):
        await database._turns.acquire()
