"""The measured HTTP servers, each in its own processes, as deployed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import processor_seconds

ROOT = Path(__file__).parent.parent
SECRET = "only for the benchmark, and long enough"
READY_SECONDS = 60.0
REDIS = shutil.which("redis-server")
HIGH = "1000000000/min"
LIMITS = (
    "RATE_LIMIT_SESSION_IP",
    "RATE_LIMIT_SESSION_TENANT",
    "RATE_LIMIT_MESSAGES_IP",
    "RATE_LIMIT_MESSAGES_TENANT",
    "RATE_LIMIT_MESSAGES_CONVERSATION",
    "RATE_LIMIT_READS_IP",
)


@dataclass(frozen=True)
class Service:
    pid: int
    port: int

    def processor_seconds(self) -> float:
        return processor_seconds(self.pid)


def environment(database_url: str, **changes: str) -> dict[str, str]:
    """Production settings: everything on, limits present but never hit."""
    return {
        **{name: value for name, value in os.environ.items() if name != "REDIS_URL"},
        **dict.fromkeys(LIMITS, HIGH),
        # All of the load comes from one address.
        "MAX_CONNECTIONS_IP": "100000",
        "DATABASE_URL": database_url,
        "WIDGET_SESSION_JWT_SECRET": SECRET,
        "WIDGET_SESSION_TTL_MINUTES": "1440",
        "LOG_FORMAT": "json",
        # Its process would work on new entries beside what is measured; ADR-0016 has its figures.
        "EMBEDDING_MODEL": "off",
        **changes,
    }


@contextmanager
def serve_hlas(
    directory: Path, database_url: str, workers: int, **changes: str
) -> Iterator[Service]:
    """`hlas serve`, with its JSON log in a file."""
    command = [str(Path(sys.executable).with_name("hlas")), "serve", "--workers", str(workers)]
    yield from _serve(directory, command, environment(database_url, **changes), "/ready")


@contextmanager
def serve_empty(directory: Path, database_url: str) -> Iterator[Service]:
    """The same server and middleware around a route that answers {}."""
    command = [sys.executable, "-m", "bench.empty"]
    yield from _serve(directory, command, environment(database_url), "/ready")


@contextmanager
def serve_plain(directory: Path, database_url: str, workers: int) -> Iterator[Service]:
    """The plain service, run by uvicorn in the usual way."""
    command = [sys.executable, "-m", "uvicorn", "bench.plain:app", "--no-access-log"]
    command += ["--workers", str(workers)]
    yield from _serve(directory, command, environment(database_url), "/health")


@contextmanager
def serve_endpoint(directory: Path, python: Path, name: str, model_url: str) -> Iterator[Service]:
    """A bare endpoint of bench/endpoints, by uvicorn, in the environment of this Python."""
    command = [str(python), "-m", "uvicorn", f"bench.endpoints.{name}:app", "--no-access-log"]
    yield from _serve(directory, command, {**os.environ, "BENCH_MODEL_URL": model_url}, "/health")


@contextmanager
def run_model(receipts: Path) -> Iterator[str]:
    """The scripted provider of the tests as a process; yields its `base_url`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripted_model", "0", str(receipts)],
        cwd=ROOT / "tests" / "support",
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def run_redis() -> Iterator[str]:
    """Start a Redis without persistence; yields its URL."""
    directory = Path(tempfile.mkdtemp(prefix="hlas-bench-"))
    command = ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    try:
        while not (directory / "redis.sock").exists():
            time.sleep(0.02)
        yield f"unix://{directory / 'redis.sock'}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _serve(
    directory: Path, command: list[str], variables: Mapping[str, str], path: str
) -> Iterator[Service]:
    port = _free_port()
    paths = (variables.get("PYTHONPATH", ""), str(ROOT))
    variables = {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with (directory / f"service-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=log, stderr=log, env=variables, cwd=directory
        )
        try:
            _wait(process, port, path, Path(log.name))
            yield Service(process.pid, port)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _wait(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
