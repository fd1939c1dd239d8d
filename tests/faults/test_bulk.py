"""Operators' commands on 100 000 messages while visitors write: correct and in bounded memory.

The figures are printed (`pytest -s`), not asserted, because they depend on the machine.
"""

import asyncio
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from archives import counts, fill
from clusters import make_data_dir, open_directory
from hlas.store import backups, embedded
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants
from processes import COMMAND, Served, environment, serve_process
from visitors import Visitor, arrive

LARGE = 100_000
SMALL = 1_000
VISITORS = 8
PAUSE_SECONDS = 0.1
QUIET_SECONDS = 10.0
# Memory of a page or a batch; a tenth of the messages at once would be far more.
FLAT_KIB = 16 * 1024


class Ran(NamedTuple):
    lines: int
    seconds: float
    peak_kib: int


class Crowd:
    """Visitors that write continuously, and the latency of each message."""

    def __init__(self, served: Served, visitors: list[Visitor]) -> None:
        self._served = served
        self._visitors = visitors
        self._times: list[float] = []
        self.sent = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._write(visitor) for visitor in self._visitors))

    async def _write(self, visitor: Visitor) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            started = time.perf_counter()
            self.sent += 1
            answer = await visitor.post(self._served.client, "hello", f"key-{self.sent}")
            assert answer.status_code == 200, answer.text
            self._times.append(time.perf_counter() - started)

    def forget(self) -> None:
        self._times.clear()

    def report(self, what: str, ran: Ran | None = None) -> None:
        times, self._times = sorted(self._times), []
        p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
        told = f"{ran.seconds:6.1f} s  {ran.peak_kib / 1024:5.0f} MiB" if ran else " " * 19
        print(f"{what:<26} {told}  visitors {len(times):>5}  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")


def run(data_dir: Path, *arguments: str) -> Ran:
    """Run a command in a separate process and measure its peak memory."""
    started = time.perf_counter()
    with open_directory() as directory, (directory / "out").open("wb") as out:
        process = subprocess.Popen(
            [COMMAND, *arguments],
            cwd=directory,
            env=environment(DATA_DIR=str(data_dir)),
            stdout=out,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, arguments
        with (directory / "out").open("rb") as written:
            lines = sum(1 for _ in written)
    return Ran(lines, time.perf_counter() - started, usage.ru_maxrss)


async def furnish(operators: Database, tenant_id: str, messages: int, days: float = 0) -> None:
    """Most messages in ordinary conversations, a tenth in a single huge one."""
    await fill(operators, tenant_id, 1, messages // 10, visitor_id="jana", days=days)
    each = 25
    for _ in range(9):
        await fill(operators, tenant_id, messages // 10 // each, each, visitor_id="jana", days=days)


@pytest.mark.soak
async def test_bulk() -> None:
    """Export, erase, retention, backup, restore of 100 000 messages while visitors write."""
    with make_data_dir() as data_dir:
        limits = {
            f"RATE_LIMIT_{name}": "off"
            for name in (
                "SESSION_IP",
                "MESSAGES_IP",
                "MESSAGES_TENANT",
                "MESSAGES_CONVERSATION",
                "READS_IP",
            )
        }
        async with serve_process(DATA_DIR=str(data_dir), LOG_LEVEL="warning", **limits) as served:  # type: ignore[arg-type]  # all of these are text
            server = embedded.attach(data_dir)
            assert server is not None
            operators = await Database.open(Logins(server.url), OPERATOR, statement_seconds=300)
            try:
                await work(data_dir, served, operators)
            finally:
                await operators.close()
            before = await totals(server.url)
        await require_restored(data_dir, before)


async def work(data_dir: Path, served: Served, operators: Database) -> None:
    ids = {}
    for slug, messages in (("small", SMALL), ("large", LARGE)):
        ids[slug] = str((await tenants.add(operators, slug, slug, [])).id)
        await furnish(operators, ids[slug], messages)
    crowd = Crowd(served, await arrive(served.client, operators, VISITORS))
    writing = asyncio.create_task(crowd.run())
    peaks: dict[str, dict[str, int]] = {"small": {}, "large": {}}

    async def step(what: str, slug: str, *arguments: str) -> Ran:
        # Other work on the machine varies, so each step has its own comparison.
        crowd.forget()
        await asyncio.sleep(QUIET_SECONDS)
        crowd.report("nothing else")
        ran = await asyncio.to_thread(run, data_dir, *arguments)
        peaks[slug][what] = ran.peak_kib
        crowd.report(f"{what}, {slug}", ran)
        assert not writing.done(), writing.exception()
        return ran

    for slug, messages in (("small", SMALL), ("large", LARGE)):
        ran = await step("export", slug, "export", "--tenant", slug)
        conversations = 1 + 9 * (messages // 250)
        assert ran.lines == messages + conversations
        erase = ("erase", "--tenant", slug, "--visitor", "jana", "--yes")
        await step("erase", slug, *erase)
        assert await counts(operators, ids[slug]) == (0, 0, 0)
        await furnish(operators, ids[slug], messages, days=40)
        await tenants.update(operators, slug, {"retention_days": 30})
        await step("retention", slug, "cleanup")
        assert await counts(operators, ids[slug]) == (0, 0, 0)
    await furnish(operators, ids["large"], LARGE)
    await step("backup", "large", "backup", str(data_dir / "backup"))
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    for what, peak in peaks["small"].items():
        assert peaks["large"][what] < peak + FLAT_KIB, (what, peaks)


async def totals(url: str) -> tuple[int, int]:
    operators = await Database.open(Logins(url), OPERATOR, statement_seconds=300)
    row = await operators.one(
        "select (select count(*) from tenants) as tenants, count(*) as messages from messages"
        " where conversation_id in (select id from conversations where visitor_id = 'jana')"
    )
    await operators.close()
    assert row is not None
    return row["tenants"], row["messages"]


async def require_restored(data_dir: Path, before: tuple[int, int]) -> None:
    """On another machine: every message of the backup exists."""
    with open_directory() as directory:
        started = time.perf_counter()
        await asyncio.to_thread(backups.restore, directory / "hlas", data_dir / "backup")
        print(f"{'restore, large':<26} {time.perf_counter() - started:6.1f} s")
        with embedded.open_server(directory / "hlas") as server:
            assert await totals(server.url) == before
            assert before[1] == LARGE
