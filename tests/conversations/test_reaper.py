"""Forgetting old keys.

Seen failing with these defects planted: `created_at >` (young keys go), no limit in the query, the
advisory lock left out (two at a time).
"""

import asyncio
import io
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from factories import Site, make_site, serve_app
from hlas import services
from hlas.conversations import messages
from hlas.settings import Settings
from hlas.store import writer
from hlas.store.db import Database, log_in
from hlas.store.logins import OPERATOR, Logins

REPLAYED = "idempotent-replayed"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts, because these tests are not about time."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)


@pytest_asyncio.fixture
async def reapers(database_url: str) -> AsyncIterator[Database]:
    """Connections of another process."""
    opened = await Database.open(Logins(database_url), OPERATOR, statement_seconds=60)
    yield opened
    await opened.close()


async def age(operators: Database, hours: float, condition: str = "true") -> None:
    await operators.execute(
        "update idempotency_keys set created_at = created_at - make_interval(secs => $1)"
        f" where {condition}",
        hours * 3600.0,
    )


async def remaining(operators: Database) -> list[str]:
    rows = await operators.all("select key from idempotency_keys order by key")
    return [row["key"] for row in rows]


async def test_lifetime(site: Site, operators: Database) -> None:
    """A key lives at least its hours, and the reaper takes it after that; messages stay."""
    for key in ("new", "old", "young"):
        await site.send(key, key=key)
    await age(operators, 23.99, "key = 'young'")
    await age(operators, 24.01, "key = 'old'")
    assert await messages.reap_keys(operators, 24) == 1
    assert await remaining(operators) == ["new", "young"]
    assert await messages.reap_keys(operators, 24) == 0
    assert len((await site.history())["messages"]) == 3
    assert (await site.send("young", key="young")).headers[REPLAYED] == "true"
    again = await site.send("old", key="old")
    assert again.status_code == 200
    assert REPLAYED not in again.headers


async def test_batches(site: Site, operators: Database) -> None:
    """The oldest go first, a batch at a time: no statement holds many rows."""
    for number in range(7):
        await site.send("hi", key=f"k{number}")
        await age(operators, 1000 - number, f"key = 'k{number}'")
    assert await messages.reap_keys(operators, 24, rows=3) == 3
    assert await remaining(operators) == ["k3", "k4", "k5", "k6"]
    assert await messages.reap_keys(operators, 24, rows=3) == 3
    assert await messages.reap_keys(operators, 24, rows=3) == 1


async def test_one_at_a_time(site: Site, operators: Database, database_url: str) -> None:
    """Several workers: while one is at it the others go home at once."""
    await site.send("hi", key="k")
    await site.send("hi", key="l")
    await age(operators, 1000)
    busy = await log_in(Logins(database_url), OPERATOR)
    await busy.execute("begin")
    assert await busy.execute(messages.queries.reap_keys, 24, 1) == "DELETE 1"
    assert await messages.reap_keys(operators, 24) == 0
    await busy.execute("commit")
    await busy.close()
    assert await messages.reap_keys(operators, 24) == 1


async def test_in_the_background(
    settings: Settings, logs: io.BytesIO, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running server deletes expired keys by itself, batch after batch, and keeps the others."""
    monkeypatch.setattr(services, "REAP_SECONDS", 0.02)
    monkeypatch.setattr(messages, "REAP_ROWS", 2)
    async with serve_app(settings, logs) as live:
        site = await make_site(live, operators)
        for number in range(5):
            await site.send("hi", key=f"old-{number}")
        await site.send("hi", key="young")
        await age(operators, 24 * 30, "key like 'old-%'")
        async with asyncio.timeout(30):
            while await remaining(operators) != ["young"]:  # noqa: ASYNC110  # the database tells nobody
                await asyncio.sleep(0.02)


async def test_racing_replays(site: Site, operators: Database, reapers: Database) -> None:
    """Edge case 17: the reaper racing replays: a hit or a clean miss, never 500."""
    stop = asyncio.Event()

    async def reap() -> int:
        reaped = 0
        while not stop.is_set():
            await age(reapers, 1000)
            reaped += await messages.reap_keys(reapers, 24, rows=2)
        return reaped

    reaping = asyncio.create_task(reap())
    answers = []
    for _ in range(25):
        answers += await asyncio.gather(*(site.send("hi", key=f"k{n % 4}") for n in range(8)))
    stop.set()
    assert await reaping > 0
    assert {answer.status_code for answer in answers} == {200}
    missed = [answer.json()["message_id"] for answer in answers if REPLAYED not in answer.headers]
    rows = await operators.all("select id::text as id, seq from messages order by seq")
    # Every miss is one message, and there are no others.
    assert sorted(row["id"] for row in rows) == sorted(missed)
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))


async def test_reaped_while_replayed(site: Site, operators: Database, database_url: str) -> None:
    """Edge case 17: a key whose removal is not committed yet is still a hit, and nothing waits."""
    first = await site.send("hi", key="k")
    await age(operators, 1000)
    reaper = await log_in(Logins(database_url), OPERATOR)
    await reaper.execute("begin")
    await reaper.execute(messages.queries.reap_keys, 24, 10)
    async with asyncio.timeout(30):
        hit = await site.send("hi", key="k")
    assert (hit.content, hit.headers[REPLAYED]) == (first.content, "true")
    await reaper.execute("commit")
    await reaper.close()
    miss = await site.send("hi", key="k")
    assert miss.status_code == 200
    assert REPLAYED not in miss.headers
