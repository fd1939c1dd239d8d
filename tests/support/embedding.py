"""The embedding process of the tests, with the real model, and what speaks to it."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from factories import make_settings
from hlas.knowledge.embedding import installation
from hlas.knowledge.embedding.client import EmbeddingClient
from hlas.knowledge.embedding.embedders import Embedder, ProcessEmbedder
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.protocol import Describe, ProtocolError
from hlas.knowledge.embedding.runtime import find_socket
from hlas.knowledge.embedding.supervisor import Supervisor
from hlas.knowledge.embedding.vectors import VectorMaker
from hlas.settings import Settings
from hlas.store.db import Database

PATIENCE = 60.0

needs_extra = pytest.mark.skipif(
    bool(installation.list_missing(Settings(_env_file=None))),
    reason="the extra semantic is not installed",
)


class Meter:
    """What was counted and shown."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.is_up = False
        self.missing: list[int] = []

    def semantic(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def show_embedding(self, *, is_up: bool) -> None:
        self.is_up = is_up

    def show_vectors(self, *, missing: int) -> None:
        self.missing.append(missing)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110  # another process changes it
            await asyncio.sleep(0.02)


async def until_answering(socket: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                async with asyncio.timeout(2):
                    await exchange(socket, Describe())
            except (OSError, EOFError, ProtocolError):
                await asyncio.sleep(0.05)
            else:
                return


@dataclass
class Host:
    """A data directory with the embedding process that a supervisor keeps running."""

    settings: Settings
    supervisor: Supervisor
    meter: Meter
    # Ends the supervisor, as the end of its worker does.
    stop: Callable[[], object]

    @property
    def socket(self) -> Path:
        return find_socket(self.settings.data_dir)

    @property
    def pids(self) -> list[int]:
        return find_processes(self.settings.data_dir)


def find_processes(data_dir: Path) -> list[int]:
    """The embedding processes of a data directory."""
    socket = os.fsencode(find_socket(data_dir))
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if socket in arguments:
            found.append(int(process.name))
    return found


def make_host_settings(data_dir: Path, **overrides: Any) -> Settings:
    values = {"embedding_model": "", "data_dir": data_dir, **overrides}
    return make_settings("postgresql://nobody@127.0.0.1:1/none", **values)


@asynccontextmanager
async def run_host(**overrides: Any) -> AsyncIterator[Host]:
    """An embedding process of its own, with the real model unless the settings say otherwise."""
    with tempfile.TemporaryDirectory(prefix="hlas-embedding-") as name:
        settings = make_host_settings(Path(name), **overrides)
        meter = Meter()
        supervisor = Supervisor(settings, meter)
        task = asyncio.create_task(supervisor.run())
        host = Host(settings, supervisor, meter, task.cancel)
        try:
            await until_answering(host.socket)
            yield host
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@dataclass
class Worker:
    """What a worker has to rank by meaning."""

    client: EmbeddingClient
    maker: VectorMaker
    meter: Meter
    embedder: Embedder


@asynccontextmanager
async def open_worker(
    socket: Path,
    database: Database,
    operators: Database,
    embedder: Embedder | None = None,
    *,
    seconds: float = PATIENCE,
) -> AsyncIterator[Worker]:
    """Its questions wait longer than visitors would, because the machine may be busy."""
    embedder = embedder or ProcessEmbedder(socket)
    embedder.seconds = seconds
    meter = Meter()
    client = EmbeddingClient(database, socket, embedder, meter)
    maker = VectorMaker(operators, embedder, meter, lambda: True)
    try:
        yield Worker(client, maker, meter, embedder)
    finally:
        await client.close()


async def compare(worker: Worker, tenant_id: str, text: str) -> dict[str, float]:
    """Ask until there is an answer."""
    while True:
        meaning = await worker.client.compare(tenant_id, text)
        if meaning is not None:
            return dict(meaning)
        assert worker.meter.outcomes.total() < 1000, worker.meter.outcomes
        await asyncio.sleep(0.05)


def start_process(
    socket: Path, *options: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """The process alone; it ends at once, because its parent has nothing for it to read."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "hlas.knowledge.embedding", str(socket), *options],
        env={**kept, **variables},
        input="",
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def list_events(process: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in process.stderr.splitlines()]
