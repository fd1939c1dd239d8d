"""Races between server processes on one database, over real HTTP.

Fails with these defects planted in write_messages: the conversations not locked (two rows
want one seq: 500), the key not looked up under the lock (its constraint refuses the second: 500).
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio

from factories import Live
from hlas.store.db import Database, connect
from processes import UNLIMITED, Served, serve_process
from visitors import Visitor, arrive

REPLAYED = "idempotent-replayed"


@pytest_asyncio.fixture
async def pair(database_url: str) -> AsyncIterator[tuple[Served, Served]]:
    """Two server processes on one database."""
    async with (
        serve_process(database_url, workers=1, **UNLIMITED) as one,
        serve_process(database_url, workers=1, **UNLIMITED) as other,
    ):
        yield one, other


async def contents(operators: Database, visitor: Visitor) -> list[str]:
    rows = await operators.all(
        "select seq, content from messages where conversation_id = $1 order by seq",
        visitor.conversation_id,
    )
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["content"] for row in rows]


async def kill_writers(superuser_url: str) -> int:
    connection = await asyncpg.connect(superuser_url)
    try:
        killed = await connection.fetch(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'hlas writer'"
        )
        return len(killed)
    finally:
        await connection.close()


async def test_same_key(pair: tuple[Served, Served], operators: Database) -> None:
    """Edge case 2: 32 concurrent posts over two processes: one row, equal bodies, 31 replays."""
    (visitor,) = await arrive(pair[0].client, operators)
    for number in range(12):
        key = f"key-{number}"
        visitor.tries = 0
        answers = await asyncio.gather(
            *(visitor.send(pair[turn % 2].client, key, key) for turn in range(32))
        )
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        first = [answer for answer in answers if REPLAYED not in answer.headers]
        # A request that was told to retry may have been the first; otherwise one response is.
        assert len(first) == 1 or (visitor.tries > 32 and not first)
    assert len(await contents(operators, visitor)) == 12


async def test_mixed_payloads(pair: tuple[Served, Served], operators: Database) -> None:
    """Edge case 3 over two processes: one row; equal payloads get its ids, the others 409."""
    (visitor,) = await arrive(pair[0].client, operators)
    for number in range(8):
        answers = await asyncio.gather(
            *(
                visitor.send(pair[turn % 2].client, f"{turn % 4}", f"k{number}")
                for turn in range(32)
            )
        )
        stored = (await contents(operators, visitor))[-1]
        for turn, answer in enumerate(answers):
            assert answer.status_code == (200 if stored == f"{turn % 4}" else 409)
        accepted = {answer.content for answer in answers if answer.status_code == 200}
        assert len(accepted) == 1
    assert len(await contents(operators, visitor)) == 8


async def test_first_session_killed(
    pair: tuple[Served, Served], operators: Database, database_url: str, postgres_server: Any
) -> None:
    """Edge case 4: the first request's session dies while others wait: one of them creates."""
    (visitor,) = await arrive(pair[0].client, operators)
    owner = await connect(database_url)
    await owner.execute(
        "create function hold() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(1); return null; end';"
        "create trigger hold after insert on messages for each statement execute function hold();"
        "begin; select pg_advisory_xact_lock(1)"
    )
    sending = [
        asyncio.create_task(visitor.send(pair[turn % 2].client, "hi", "k")) for turn in range(16)
    ]
    async with asyncio.timeout(30):
        held = "select count(*) from pg_locks where not granted"
        while not await owner.fetchval(held):  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(0.02)
    assert await kill_writers(postgres_server.superuser_url)
    await owner.close()
    answers = await asyncio.gather(*sending)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    assert len([answer for answer in answers if REPLAYED not in answer.headers]) <= 1
    assert await contents(operators, visitor) == ["hi"]


async def test_reader_misses_nothing(
    pair: tuple[Served, Served], live_server: Live, operators: Database
) -> None:
    """Edge case 20a: two processes write, a third reads by `after`: each once, in order, 1..n."""
    (visitor,) = await arrive(live_server.client, operators)
    total = 240
    seen: list[object] = []

    async def write(process: int, sender: int) -> None:
        for number in range(total // 12):
            key = f"{process}-{sender}-{number}"
            answer = await visitor.send(pair[process].client, key, key)
            assert answer.status_code == 200

    async def read() -> None:
        while len(seen) < total:
            page = await visitor.read(live_server.client, len(seen))
            assert [message["seq"] for message in page] == list(
                range(len(seen) + 1, len(seen) + len(page) + 1)
            )
            seen.extend(message["content"] for message in page)
            await asyncio.sleep(0.005)

    async with asyncio.timeout(120):
        await asyncio.gather(
            read(), *(write(process, sender) for process in (0, 1) for sender in range(6))
        )
    assert max(Counter(seen).values()) == 1
    assert await contents(operators, visitor) == seen


async def test_one_event_each(pair: tuple[Served, Served], operators: Database) -> None:
    """Edge case 19 over two processes: one idempotency event for each answered keyed request."""
    (visitor,) = await arrive(pair[0].client, operators)
    await asyncio.gather(
        *(visitor.post(pair[turn % 2].client, f"{turn % 3}", "k") for turn in range(30))
    )
    names = [event["event"] for served in pair for event in served.events()]
    events = Counter(name for name in names if name.startswith("idempotency_"))
    statuses = Counter(
        event["status"]
        for served in pair
        for event in served.events("request")
        if event["route"] == "/widget/messages"
    )
    assert events["idempotency_miss"] + events["idempotency_hit"] == statuses[200]
    assert events["idempotency_conflict"] == statuses[409]
    assert events["idempotency_miss"] <= 1
