"""An hour of half load: memory, descriptors, connections and tasks do not grow.

`HLAS_SOAK_SECONDS=3600 pytest -q -s -m soak tests/faults/test_soak.py`

Two workers and a PostgreSQL with fsync on. Fails with each of these planted: 1 KB kept for
every request, a task or a file left open.
"""

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import psutil
import pytest

import log_scan
from clusters import open_directory
from crowd import WORD, Account, Crowd
from factories import url_of
from hlas.store import embedded
from hlas.store.db import Database
from hlas.store.embedded import Server
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants
from processes import Served, serve_process

SECONDS = float(os.environ.get("HLAS_SOAK_SECONDS", "3600"))
VISITORS = 48
WORKERS = 2
# Connections of a worker: readers, operators, tenants' administrators, and the writer.
CONNECTIONS = WORKERS * (8 + 4 + 4 + 1)
PROBE = Path(__file__).parents[1] / "support" / "probe"

MIB = 1024 * 1024
# Normal variation of allocators and of bounded caches.
NOISE_BYTES = 3 * MIB
# More than this is a leak; in a short run the bound is per request.
FLAT_BYTES = 8 * MIB
LEAK_BYTES = 256

GENEROUS = {
    "MAX_CONNECTIONS_IP": "0",
    "RATE_LIMIT_SESSION_IP": "1000000/min",
    "RATE_LIMIT_SESSION_TENANT": "1000000/min",
    "RATE_LIMIT_MESSAGES_IP": "1000000/min",
    "RATE_LIMIT_MESSAGES_TENANT": "1000000/min",
    "RATE_LIMIT_MESSAGES_CONVERSATION": "30/min",
    "RATE_LIMIT_READS_IP": "1000000/min",
}
DATABASE_STATE = """
select (select count(*) from pg_stat_activity
        where application_name in ('hlas', 'hlas writer')) as connections,
       (select count(*) from pg_stat_activity
        where state like 'idle in transaction%' and now() - state_change > interval '5 s') as stuck,
       (select sum(deadlocks) from pg_stat_database)::int as deadlocks,
       (select sum(size) from pg_ls_waldir())::bigint as wal,
       pg_size_bytes(current_setting('max_wal_size')) as wal_allowed
"""


@dataclass
class Sample:
    rss: list[int]
    files: list[int]
    sockets: list[int]
    tasks: list[int]


@dataclass
class Watch:
    """Measures the server's processes and its database from outside."""

    served: Served
    directory: Path
    database: asyncpg.Connection
    samples: list[Sample] = field(default_factory=list)
    connections: int = 0
    problems: set[str] = field(default_factory=set)

    async def look(self) -> Sample:
        workers = self.served.workers
        processes = [psutil.Process(self.served.process.pid), *workers]
        unix = [len(one.net_connections("unix")) for one in workers]
        return Sample(
            rss=[one.memory_info().rss for one in processes],
            files=[one.num_fds() - own for one, own in zip(workers, unix, strict=True)],
            sockets=[visitors_of(one) for one in workers],
            tasks=[await self._tasks(one.pid) for one in workers],
        )

    async def _tasks(self, pid: int) -> int:
        report = self.directory / f"{pid}.tasks"
        report.unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR2)
        async with asyncio.timeout(60):
            while not report.exists():  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.01)
        return int(report.read_text())

    async def keep(self, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            self.samples.append(await self.look())
            await self._look_at_database()

    async def _look_at_database(self) -> None:
        state = await self.database.fetchrow(DATABASE_STATE)
        self.connections = max(self.connections, state["connections"])
        if state["stuck"]:
            self.problems.add("a transaction was left open")
        if state["deadlocks"]:
            self.problems.add("a deadlock")
        if state["wal"] > 2 * state["wal_allowed"]:
            self.problems.add("the log of the database grows without end")

    async def idle(self, before: Sample | None = None) -> Sample:
        """An idle server, compared with before, after a grace period."""
        sample = await self.look()
        for _ in range(100):
            if not any(sample.sockets) and (before is None or not leaks(before, sample)):
                break
            await asyncio.sleep(0.3)
            sample = await self.look()
        return sample


def visitors_of(worker: psutil.Process) -> int:
    """Visitors' connections, without the listening socket."""
    return sum(one.status != psutil.CONN_LISTEN for one in worker.net_connections("tcp"))


def leaks(before: Sample, after: Sample) -> list[str]:
    """Resources that an idle server has now and did not have before."""
    found = []
    for name in ("files", "tasks"):
        was, is_now = getattr(before, name), getattr(after, name)
        if any(now > then for now, then in zip(is_now, was, strict=True)):
            found.append(f"{name}: {was} before, {is_now} after")
    return found


def growth(values: list[int]) -> float:
    """After a warm-up of a third: from the median of the first third of the rest to the last."""
    rest = values[len(values) // 3 :]
    third = max(1, len(rest) // 3)
    return statistics.median(rest[-third:]) - statistics.median(rest[:third])


def allowed_growth(requests: int) -> float:
    """The growth that one process may have in a run with this many requests."""
    # The middles of those thirds are 4/9 of a run apart.
    served = requests * 4 / 9 / WORKERS
    return NOISE_BYTES + min(FLAT_BYTES, LEAK_BYTES * served)


def series(first: int, last: int, count: int = 90) -> list[int]:
    return [first + (last - first) * number // count for number in range(count)]


def test_growth() -> None:
    """A leak is detected in short and long runs; a warm-up and single peaks are not leaks."""
    flat = [50 * MIB] * 10 + series(50 * MIB, 90 * MIB, 20) + [90 * MIB] * 60
    flat[40] = flat[70] = 200 * MIB
    assert growth(flat) == 0
    for requests, leak in ((60_000, 1024), (2_000_000, 64)):
        leaked = requests // WORKERS * leak
        assert growth(series(80 * MIB, 80 * MIB + leaked)) > allowed_growth(requests)


@asynccontextmanager
async def serve_soaked(
    server: Server, url: str, plant: str = ""
) -> AsyncIterator[tuple[Watch, Crowd]]:
    """A server with a probe in each process, tenants on it, and a crowd."""
    log_scan.hear(WORD)
    with tempfile.TemporaryDirectory(prefix="hlas-probe-") as name:
        given = {
            **GENEROUS,
            "LOG_LEVEL": "warning",
            "PYTHONPATH": str(PROBE),
            "HLAS_PROBE_DIR": name,
            "HLAS_PROBE_PLANT": plant,
        }
        async with serve_process(url, workers=WORKERS, **given) as served:
            # Its idle connection would count as a visitor's.
            await served.client.aclose()
            origins = await open_shops(url)
            name_of_database = url.partition("?")[0].rpartition("/")[2]
            database = await asyncpg.connect(url_of(server.superuser_url, name_of_database))
            try:
                yield Watch(served, Path(name), database), Crowd(served.url, origins, VISITORS)
            finally:
                await database.close()


async def open_shops(url: str) -> list[str]:
    """The origins of five tenants; no connection is left open that would count as a visitor's."""
    origins = [f"https://soaked-{number}.example" for number in range(5)]
    operators = await Database.open(Logins(url), OPERATOR)
    for number, origin in enumerate(origins):
        await tenants.add(operators, f"Soaked {number}", f"soaked-{number}", [origin])
    await operators.close()
    return origins


async def require_stored(database: asyncpg.Connection, account: Account) -> None:
    """Every acknowledged message of visitors is stored once, and no other of theirs is."""
    row = await database.fetchrow(
        "select count(*) as count, coalesce(sum(('x0' || right(replace(id::text, '-', ''), 15))"
        "::bit(64)::bigint), 0)::text as ids from messages where role = 'user'"
    )
    assert (row["count"], int(row["ids"])) == (account.acknowledged, account.ids)
    assert account.problems[:3] == []
    # A busy machine may answer 503; a retry succeeds.
    assert max(status for status in account.statuses if status != 503) < 500, account.statuses


async def test_no_leaks(postgres_server: Server, database_url: str) -> None:
    """Two thousand requests of all kinds: acknowledged is stored; no task or file is leaked."""
    async with serve_soaked(postgres_server, database_url) as (watch, crowd):
        await crowd.live(VISITORS // 2)
        before = await watch.idle()
        await crowd.live(2 * VISITORS)
        after = await watch.idle(before)
        assert leaks(before, after) == []
        assert not any(after.sockets)
        assert {200, 204, 400, 401, 403, 404, 405, 409, 413, 422, 429} <= set(
            crowd.account.statuses
        )
        await require_stored(watch.database, crowd.account)


async def test_leaks_are_detected(postgres_server: Server, database_url: str) -> None:
    """The control: a leaked task or file per request is detected."""
    async with serve_soaked(postgres_server, database_url, plant="task file") as (watch, crowd):
        before = await watch.idle()
        await crowd.live(4)
        found = leaks(before, await watch.look())
        assert [problem.partition(":")[0] for problem in found] == ["files", "tasks"]


@contextmanager
def durable_server() -> Iterator[Server]:
    """A PostgreSQL with fsync on, like the embedded one."""
    with open_directory() as directory:
        server = embedded.start(directory / "hlas")
        server.watch()
        try:
            yield server
        finally:
            server.stop()


async def soak(seconds: float, plant: str = "") -> tuple[list[float], float]:
    """The growth of each process in bytes, and its bound."""
    with durable_server() as server:
        async with serve_soaked(server, server.url, plant) as (watch, crowd):
            return await soak_in(seconds, watch, crowd)


async def soak_in(seconds: float, watch: Watch, crowd: Crowd) -> tuple[list[float], float]:
    account = crowd.account
    async with crowd.present(rate=None):
        await asyncio.sleep(trial := min(10.0, seconds / 6))
        capacity = account.requests / trial
    before = await watch.idle()
    started, done = time.monotonic(), account.requests
    async with crowd.present(rate=capacity / 2):
        keeping = asyncio.create_task(watch.keep(pause=min(5.0, seconds / 90)))
        await asyncio.wait([keeping], timeout=seconds)
        keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    rate = (account.requests - done) / (time.monotonic() - started)
    after = await watch.idle(before)
    print(f"\n{rate:.0f} requests/s for {seconds:.0f} s, half of {capacity:.0f}/s")
    report(watch, account, before, after)
    assert leaks(before, after) == []
    assert watch.problems == set()
    assert watch.connections <= CONNECTIONS
    assert max(count for sample in watch.samples for count in sample.sockets) <= 2 * VISITORS
    await require_stored(watch.database, account)
    assert max(account.statuses) < 500, account.statuses
    columns = zip(*(sample.rss for sample in watch.samples), strict=True)
    grown = [growth(list(column)) for column in columns]
    return grown, allowed_growth(account.requests - done)


def report(watch: Watch, account: Account, before: Sample, after: Sample) -> None:
    print(f"acknowledged {account.acknowledged}, slowest {account.slowest:.2f} s")
    print("statuses", dict(sorted(account.statuses.items())))
    for number, name in enumerate(("supervisor", *(f"worker {n + 1}" for n in range(WORKERS)))):
        values = [sample.rss[number] for sample in watch.samples]
        tenths = [values[len(values) * part // 10] / MIB for part in range(10)]
        print(f"{name:<10} MiB", *(f"{value:.0f}" for value in tenths), f"{values[-1] / MIB:.0f}")
        print(f"{name:<10} grew by {growth(values) / MIB:.2f} MiB")
    print("tasks idle", before.tasks, "then", after.tasks)
    print("files idle", before.files, "then", after.files)
    print("connections to the database, at most", watch.connections)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 1800)
async def test_soak() -> None:
    """An hour of half load: flat memory, no leaked connection or task, nothing lost, no 5xx."""
    grown, allowed = await soak(SECONDS)
    assert max(grown) < allowed


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_planted_leak() -> None:
    """The control: a leak of 1 KB per request is detected within 90 s."""
    grown, allowed = await soak(90, "memory")
    assert min(grown[1:]) > allowed
