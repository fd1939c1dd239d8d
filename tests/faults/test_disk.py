"""A full disk: requests get 503, nothing acknowledged is lost, and freeing space is enough.

The data directory is a small file system of its own, so the machine's disk is not filled. Fails
with the error of a full disk left out of `db.AWAY`.
"""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import httpx
import pytest

from clusters import open_directory
from hlas.store import embedded, migrations
from hlas.store.db import Database
from hlas.store.embedded import Server
from hlas.store.logins import OPERATOR, Logins
from processes import UNLIMITED, serve_process, wait_until_ready
from visitors import Visitor, arrive, find_settled_losses

SIZE = "256m"
VISITORS = 8
RECOVERY_SECONDS = 60


@contextmanager
def small_disk() -> Iterator[Path]:
    with open_directory() as directory:
        disk = directory / "disk"
        disk.mkdir()
        mounting = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0711", "tmpfs", str(disk)]
        mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield disk
        finally:
            subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def disk() -> Iterator[Path]:
    with small_disk() as path:
        yield path


@pytest.fixture
def server(disk: Path) -> Iterator[Server]:
    started = embedded.start(disk / "hlas")
    started.watch()
    try:
        yield started
    finally:
        started.stop()


def fill(disk: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**16))
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0")
    assert os.statvfs(disk).f_bavail == 0
    return ballast


async def use_up_the_log(server: Server) -> None:
    """Force the next segment of the write-ahead log to be created, for which there is no space."""
    with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        administrator = await asyncpg.connect(server.superuser_url)
        try:
            for _ in range(8):
                await administrator.execute("create table filler (n int); drop table filler")
                await administrator.execute("select pg_switch_wal()")
        finally:
            await administrator.close(timeout=5)


class Senders:
    """Visitors that send continuously; statuses and pending keys are recorded."""

    def __init__(self, client: httpx.AsyncClient, visitors: list[Visitor]) -> None:
        self._client = client
        self._visitors = visitors
        self.statuses: set[int] = set()
        self.refused = asyncio.Event()
        self.over = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as sending:
            for visitor in self._visitors:
                sending.create_task(self._send(visitor))

    async def _send(self, visitor: Visitor) -> None:
        number = 0
        while not self.over.is_set():
            # A text that does not compress, so that the tables grow.
            key = f"{number}-{os.urandom(100).hex()}"
            answer = await visitor.post(self._client, key, key)
            while answer.status_code != 200:
                self.statuses.add(answer.status_code)
                self.refused.set()
                await asyncio.sleep(0.05)
                answer = await visitor.post(self._client, key, key)
            self.statuses.add(200)
            visitor.acknowledged[key] = answer.json()["message_id"]
            number += 1


@pytest.mark.parametrize("full", ["tables", pytest.param("log", marks=pytest.mark.soak)])
@pytest.mark.timeout(300)
async def test_disk_full(server: Server, disk: Path, full: str) -> None:
    """Full for tables or for the log: 503, never 500; none lost; normal once there is space."""
    await migrations.upgrade_in_thread(Logins(server.url))
    operators = await Database.open(Logins(server.url), OPERATOR, statement_seconds=60)
    async with (
        serve_process(server.url, workers=1, **UNLIMITED) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        visitors = await arrive(client, operators, VISITORS)
        senders = Senders(client, visitors)
        sending = asyncio.create_task(senders.run())
        await asyncio.sleep(0.5)
        ballast = fill(disk)
        if full == "log":
            await use_up_the_log(server)
        async with asyncio.timeout(120):
            await asyncio.wait(
                [sending, asyncio.create_task(senders.refused.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        # A while with a full disk: whatever the database does, there is no 500.
        await asyncio.sleep(1 if full == "tables" else 5)
        assert (await client.get("/health")).status_code == 200
        ballast.unlink()
        await wait_until_ready(client, RECOVERY_SECONDS)
        senders.over.set()
        async with asyncio.timeout(RECOVERY_SECONDS):
            await sending
        assert senders.statuses == {200, 503}
    assert await find_settled_losses(operators, visitors) == []
    await operators.close()
