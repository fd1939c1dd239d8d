"""The `hlas` command in separate processes, as users run it."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil

import log_scan

COMMAND = Path(sys.executable).with_name("hlas")
START_SECONDS = 60
UNLIMITED = {
    "MAX_CONNECTIONS_IP": "0",
    **{
        f"RATE_LIMIT_{name}": "off"
        for name in (
            "SESSION_IP",
            "SESSION_TENANT",
            "MESSAGES_IP",
            "MESSAGES_TENANT",
            "MESSAGES_CONVERSATION",
            "READS_IP",
        )
    },
}

_READY = re.compile(rb"Hlas is ready on (http://\S+)")


def environment(database_url: str = "", **variables: str) -> dict[str, str]:
    """The variables that a process needs to start and to measure coverage."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in {"PATH", "HOME", "LANG"} or name.startswith("COV")
    }
    given = {"DATABASE_URL": database_url, "WIDGET_SESSION_JWT_SECRET": log_scan.SECRET}
    # A process of its own for each server would cost more than most tests do.
    kept |= {"EMBEDDING_MODEL": "off"}
    return {**kept, **(given if database_url else {}), **variables}


def hlas(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for it."""
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@dataclass
class Served:
    """`hlas serve` in a separate process."""

    url: str
    process: subprocess.Popen[bytes]
    log_path: Path
    client: httpx.AsyncClient

    def output(self) -> bytes:
        return self.log_path.read_bytes()

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        lines = [orjson.loads(line) for line in self.output().splitlines() if line.startswith(b"{")]
        return [line for line in lines if name is None or line["event"] == name]

    @property
    def workers(self) -> list[psutil.Process]:
        # The supervisor's other child is Python's resource tracker.
        children = psutil.Process(self.process.pid).children()
        found = [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        return sorted(found, key=lambda one: one.pid)

    async def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30) -> int:
        """Send the signal and return the exit status."""
        self.process.send_signal(number)
        return await asyncio.to_thread(self.process.wait, seconds)


@asynccontextmanager
async def serve_process(
    database_url: str = "", *, workers: int = 1, **variables: str
) -> AsyncIterator[Served]:
    """Start a server with its own log, which is searched for secrets when it stops."""
    with tempfile.TemporaryDirectory(prefix="hlas-serve-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        directory.chmod(0o711)
        log_path = directory / "log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [COMMAND, "serve", "--port", "0", "--workers", str(workers)],
                cwd=directory,
                env=environment(database_url, **variables),
                stdout=log,
                stderr=log,
            )
        try:
            url = await _ready(process, log_path)
            async with httpx.AsyncClient(
                base_url=url, timeout=20, event_hooks={"request": [log_scan.hear_request]}
            ) as client:
                await _wait_until_answering(client, process)
                yield Served(url, process, log_path, client)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    await asyncio.to_thread(process.wait, 30)
                except subprocess.TimeoutExpired:
                    process.kill()
            log_scan.check(log_path.read_bytes())


async def _ready(process: subprocess.Popen[bytes], log_path: Path) -> str:
    async with asyncio.timeout(START_SECONDS):
        while True:
            if found := _READY.search(log_path.read_bytes()):
                return found[1].decode()
            assert process.poll() is None, log_path.read_text()
            await asyncio.sleep(0.05)


async def _wait_until_answering(
    client: httpx.AsyncClient, process: subprocess.Popen[bytes]
) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                if (await client.get("/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                assert process.poll() is None
            await asyncio.sleep(0.05)


async def wait_until_ready(client: httpx.AsyncClient, seconds: float) -> float:
    """Wait until the service is ready again; returns the seconds it took."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while True:
            try:
                if (await client.get("/ready")).status_code == 200:
                    return time.monotonic() - started
            except httpx.TransportError:
                pass  # not ready yet
            await asyncio.sleep(0.05)
