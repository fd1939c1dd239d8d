"""The application's clock is wrong by hours; the database's is right.

libfaketime changes the time for the application only.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from clusters import open_directory
from hlas.store.db import Database, log_in
from hlas.store.logins import OPERATOR, Logins
from processes import COMMAND, Served, environment, serve_process
from visitors import Visitor, arrive

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed")

SKEWS = ["-9h", *(pytest.param(skew, marks=pytest.mark.soak) for skew in ("+9h", "+40d", "-40d"))]


class Clock:
    """The time that the application sees; it can be changed while it runs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, skew: str) -> None:
        staging = self._path.with_suffix(".new")
        staging.write_text(skew)
        staging.replace(self._path)

    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_NO_CACHE": "1",
            # Only the wall clock is wrong, not the monotonic clock.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


@asynccontextmanager
async def serve_skewed(database_url: str, skew: str) -> AsyncIterator[tuple[Served, Clock]]:
    with open_directory() as directory:
        clock = Clock(directory / "clock")
        clock.set(skew)
        limits = {"RATE_LIMIT_MESSAGES_CONVERSATION": "5/min", "IDEMPOTENCY_TTL_HOURS": "1"}
        async with serve_process(database_url, workers=1, **limits, **clock.variables()) as served:
            yield served, clock


async def require_skew(served: Served, hours: float) -> None:
    """The control: the application really uses the wrong time."""
    async with asyncio.timeout(30):
        while True:
            answer = await served.client.get("/health")
            seen = parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
            if abs(seen - hours * 3600) < 600:
                return
            await asyncio.sleep(0.1)


def hours_of(skew: str) -> float:
    return float(skew[:-1]) * (24 if skew[-1] == "d" else 1)


async def refresh(served: Served, visitor: Visitor) -> int:
    answer = await served.client.post("/widget/session/refresh", headers=visitor.headers)
    if answer.status_code == 200:
        visitor.token = answer.json()["token"]
    return answer.status_code


@pytest.mark.parametrize("skew", SKEWS)
async def test_skew(skew: str, database_url: str, operators: Database) -> None:
    """Tokens, limits, keys and the reaper each use one clock, so a wrong clock breaks none."""
    async with serve_skewed(database_url, skew) as (served, clock):
        await require_skew(served, hours_of(skew))
        (visitor,) = await arrive(served.client, operators)
        first = await visitor.post(served.client, "hello", "key-hello")
        assert first.status_code == 200
        # The reaper uses the clock that wrote the key's time, not its own.
        cleaned = await asyncio.create_subprocess_exec(
            COMMAND, "cleanup", env=environment(database_url, **clock.variables())
        )
        assert await cleaned.wait() == 0
        again = await visitor.post(served.client, "hello", "key-hello")
        assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
        assert await refresh(served, visitor) == 200
        for number in range(3):
            assert (await visitor.post(served.client, f"more {number}")).status_code == 200
        refused = await visitor.post(served.client, "too much")
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        stored = await operators.all(
            "select seq, abs(extract(epoch from now() - created_at)) < 600 as is_right"
            " from messages order by seq"
        )
        assert [(row["seq"], row["is_right"]) for row in stored] == [(n, True) for n in range(1, 5)]


@pytest.mark.soak
async def test_reaper_goes_by_the_database(database_url: str, operators: Database) -> None:
    """An expired key is reaped although the application's clock is 40 days behind."""
    async with serve_skewed(database_url, "-40d") as (served, clock):
        (visitor,) = await arrive(served.client, operators)
        await visitor.post(served.client, "hello", "key-hello")
        owner = await log_in(Logins(database_url), OPERATOR)
        await owner.execute("update idempotency_keys set created_at = now() - interval '2 h'")
        variables = {**clock.variables(), "IDEMPOTENCY_TTL_HOURS": "1"}
        cleaned = await asyncio.create_subprocess_exec(
            COMMAND, "cleanup", env=environment(database_url, **variables)
        )
        assert await cleaned.wait() == 0
        assert await owner.fetchval("select count(*) from idempotency_keys") == 0
        await owner.close()


async def test_steps(database_url: str, operators: Database) -> None:
    """Edge case 29: a step back locks nobody out; after a step ahead tokens are refreshed."""
    async with serve_skewed(database_url, "+0h") as (served, clock):
        (visitor,) = await arrive(served.client, operators)
        assert (await visitor.post(served.client, "before", "key-1")).status_code == 200
        clock.set("-9h")
        await require_skew(served, -9)
        assert (await visitor.post(served.client, "back", "key-2")).status_code == 200
        (newcomer,) = await arrive(served.client, operators)
        assert (await newcomer.post(served.client, "hello", "key-1")).status_code == 200
        clock.set("+9h")
        await require_skew(served, 9)
        refused = await visitor.post(served.client, "ahead", "key-3")
        assert (refused.status_code, refused.json()["detail"]) == (401, "token_expired")
        assert await refresh(served, visitor) == 200
        assert (await visitor.post(served.client, "ahead", "key-3")).status_code == 200
        again = await visitor.post(served.client, "before", "key-1")
        assert again.headers["idempotent-replayed"] == "true"
