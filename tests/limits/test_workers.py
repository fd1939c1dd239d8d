"""Limits over several worker processes of one server, seen by clients."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from factories import leave_to_people
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import Served, serve_process
from redis_servers import RedisServer, run_redis

ORIGIN = "https://busy.example"
LIMIT = 500
REQUESTS = 2000
CONNECTIONS = 100


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    with run_redis() as server:
        yield server


@asynccontextmanager
async def several_workers(
    database_url: str, operators: Database, redis_server: RedisServer, workers: int
) -> AsyncIterator[tuple[Served, str]]:
    """A server whose only limit is the tenant's, and a session there."""
    await tenants.add(operators, "Busy", "busy", [ORIGIN])
    await leave_to_people(operators)
    limits = {
        f"RATE_LIMIT_{name}": "off"
        for name in ("SESSION_IP", "SESSION_TENANT", "MESSAGES_IP", "MESSAGES_CONVERSATION")
    }
    async with serve_process(
        database_url,
        workers=workers,
        REDIS_URL=redis_server.url,
        RATE_LIMIT_MESSAGES_TENANT=f"{LIMIT}/min",
        **limits,
    ) as served:
        answer = await served.client.post("/widget/session", headers={"Origin": ORIGIN})
        yield served, answer.json()["token"]


async def send_many(served: Served, token: str, count: int) -> Counter[int]:
    """The statuses of messages that are sent over many connections at once."""
    statuses: Counter[int] = Counter()
    headers = {"Authorization": f"Bearer {token}", "Origin": ORIGIN}
    context = httpx.create_ssl_context()

    async def send() -> None:
        # A client for each: the time that one takes grows with the square of its connections.
        async with httpx.AsyncClient(base_url=served.url, verify=context, timeout=60) as client:
            for _ in range(count // CONNECTIONS):
                answer = await client.post("/widget/messages", json={"text": "hi"}, headers=headers)
                statuses[answer.status_code] += 1

    await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    return statuses


async def test_exact_over_workers(
    database_url: str, operators: Database, redis_server: RedisServer
) -> None:
    """Edge case 28: four workers, 2 000 requests at once, 500/min: exactly 500 pass."""
    async with several_workers(database_url, operators, redis_server, 4) as (served, token):
        assert await send_many(served, token, REQUESTS) == {200: LIMIT, 429: REQUESTS - LIMIT}
        row = await operators.one("select count(*) as stored from messages")
        assert row is not None
        assert row["stored"] == LIMIT


async def test_redis_dies_under_load(
    database_url: str, operators: Database, redis_server: RedisServer
) -> None:
    """Edge case 28: Redis killed and restarted under load: no 5xx, and limits always apply."""
    async with several_workers(database_url, operators, redis_server, 2) as (served, token):
        sending = asyncio.create_task(send_many(served, token, REQUESTS))
        await asyncio.sleep(0.3)
        redis_server.kill()
        await asyncio.sleep(0.7)
        redis_server.start()
        statuses = await sending
        assert set(statuses) <= {200, 429}
        # Without Redis each worker counts alone, and Redis itself has lost its counts.
        assert LIMIT <= statuses[200] <= 3 * LIMIT
