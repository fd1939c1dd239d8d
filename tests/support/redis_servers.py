"""A real Redis for tests: shared by a module, killed, stopped and started again."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError


class RedisServer:
    """Has no persistence: after a kill it is empty."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.url = f"unix://{directory}/redis.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""],
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
        )
        with Redis.from_url(self.url) as client:
            while not self._answers(client):
                assert self.process.poll() is None, "redis-server did not start"
                time.sleep(0.02)

    def _answers(self, client: Redis) -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def run_redis() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    # A short path: the address of a unix socket has at most 107 characters.
    directory = Path(tempfile.mkdtemp(prefix="hlas-redis-"))
    server = RedisServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
