"""Embedded clusters for tests, in directories that an unprivileged server can reach."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hlas.store import embedded
from hlas.store.embedded import Server, postmaster
from hlas.store.embedded.cluster import Cluster, locate

# Starts a server as `hlas serve` does and keeps it until a signal arrives.
APPLICATION = """
import signal, sys
from pathlib import Path
from hlas.store import embedded
server = embedded.start(Path(sys.argv[1]))
server.watch()
def end(*_):
    server.stop()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(server.pid, flush=True)
while True:
    signal.pause()
"""


# A file system in memory, where a database is cloned in a tenth of the time.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 2 << 30


@contextmanager
def open_directory(parent: Path | None = None) -> Iterator[Path]:
    """Make pytest's directories accessible: root's server runs as another user."""
    path = Path(tempfile.mkdtemp(prefix="hlas-test-", dir=parent))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def find_memory() -> Path | None:
    """The file system in memory if it has room for the servers of all test processes."""
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES else None


@contextmanager
def make_data_dir(parent: Path | None = None) -> Iterator[Path]:
    """A DATA_DIR with a cluster; every process that is left on it is stopped at the end."""
    with open_directory(parent) as directory:
        data_dir = directory / "hlas"
        embedded.start(data_dir).stop()
        try:
            yield data_dir
        finally:
            end(data_dir)


def end(data_dir: Path) -> None:
    postmaster.shut_down(cluster_of(data_dir), None)


def cluster_of(data_dir: Path) -> Cluster:
    cluster = locate(data_dir)
    assert cluster is not None
    return cluster


def is_gone(server: Server) -> bool:
    return not postmaster.is_running(server.cluster) and not postmaster.members(server.cluster)


def psql(url: str, sql: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [embedded.binary("psql"), "-X", "-w", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": os.environ["PATH"]},
        **options,
    )


def query(url: str, sql: str) -> str:
    done = psql(url, sql)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python(script: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@contextmanager
def application(data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that serves on `data_dir`; its server responds when this returns."""
    with python(APPLICATION, data_dir) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().strip().isdigit()
            yield process
        finally:
            process.kill()
