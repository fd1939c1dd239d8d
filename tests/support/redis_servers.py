"""A real Redis of one's own: shared by a module, killed, stopped and started again."""

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
    """Without persistence: killed, it forgets everything."""

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
def running_redis() -> Iterator[RedisServer]:
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    # A short path: the name of a unix socket has 107 characters at most.
    directory = Path(tempfile.mkdtemp(prefix="hlas-redis-"))
    server = RedisServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
