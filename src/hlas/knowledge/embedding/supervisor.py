"""Keeps the embedding process of this host running, from one of its workers.

Every worker tries to get a file lock; the holder starts the process and starts it again when it
dies or hangs. When the holder goes, the process goes with it, and another worker takes over.
"""

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from hlas import log
from hlas.knowledge.embedding import runtime
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.installation import Meter, is_usable, locate_model_dir
from hlas.knowledge.embedding.protocol import REFUSED, Describe, ProtocolError
from hlas.settings import Settings
from hlas.store.embedded.locks import FileLock

LOCK_SECONDS = 1.0
PING_SECONDS = 2.0
# A process that does not answer for so long hangs. Answering needs none of its busy threads.
HUNG_SECONDS = 10.0
START_SECONDS = 120.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# A model that was refused is tried again rarely: somebody has to replace it.
REFUSED_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0
FAREWELL_SECONDS = 1.0
LONGEST_LINE = 4096
# What the process gets of our environment; the rest may be secret.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH")
# One thread each: the process has its own.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class _End:
    """How the process ended."""

    status: int
    seconds: float


class Supervisor:
    """One for each worker; of the workers of a host one holds the lock."""

    def __init__(self, settings: Settings, meter: Meter) -> None:
        self._settings = settings
        self._meter = meter
        self.is_holder = False

    async def run(self) -> None:
        """Hold the lock and the process as long as the worker runs."""
        if not is_usable(self._settings):
            return
        try:
            directory = runtime.make_directory(self._settings.data_dir)
            lock = FileLock(directory / runtime.LOCK)
        except Exception as error:  # noqa: BLE001  # whatever the reason, answers do without
            log.warning("embedding_unavailable", error=type(error).__name__)
            return
        try:
            while not lock.acquire():  # noqa: ASYNC110  # the kernel cannot tell us
                await asyncio.sleep(LOCK_SECONDS)
            self.is_holder = True
            await self._keep_running(directory / runtime.SOCKET)
        finally:
            self.is_holder = False
            lock.close()

    async def _keep_running(self, socket: Path) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            end = await self._run_once(socket)
            if end.seconds > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            if end.status == REFUSED:
                pause = REFUSED_PAUSE_SECONDS
            log.warning("embedding_ended", status=end.status, retry_s=pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _run_once(self, socket: Path) -> _End:
        loop = asyncio.get_running_loop()
        started = loop.time()
        _forget(socket)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hlas.knowledge.embedding",
            str(socket),
            *self._list_options(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            env=_make_environment(),
            cwd="/",
            # Ctrl-C is for us: it ends with us.
            start_new_session=True,
        )
        watch = asyncio.create_task(self._watch(process, socket), name="embedding watch")
        output = asyncio.create_task(_pass_on_log(process), name="embedding log")
        try:
            status = await process.wait()
            return _End(status, loop.time() - started)
        finally:
            self._meter.show_embedding(is_up=False)
            watch.cancel()
            await _end(process)
            await asyncio.gather(watch, output, return_exceptions=True)

    def _list_options(self) -> list[str]:
        if self._settings.embedding_model:
            return ["--without-model"]
        directory = locate_model_dir(self._settings)
        return ["--model-dir", str(directory.resolve())] if directory else []

    async def _watch(self, process: asyncio.subprocess.Process, socket: Path) -> None:
        """Kill the process when it does not answer."""
        patience = START_SECONDS
        while True:
            try:
                async with asyncio.timeout(patience):
                    await _wait_for_answer(socket)
            except TimeoutError:
                log.error("embedding_hung", seconds=patience)
                _kill(process)
                return
            self._meter.show_embedding(is_up=True)
            patience = HUNG_SECONDS
            await asyncio.sleep(PING_SECONDS)


async def _wait_for_answer(socket: Path) -> None:
    while True:
        try:
            await exchange(socket, Describe())
        except (OSError, EOFError, ProtocolError):
            await asyncio.sleep(0.05)
        else:
            return


def _forget(socket: Path) -> None:
    """An earlier process that hangs may still listen there."""
    socket.unlink(missing_ok=True)


def _make_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**kept, **_THREADS, "PYTHONDONTWRITEBYTECODE": "1"}


async def _pass_on_log(process: asyncio.subprocess.Process) -> None:
    """Write the lines of the process into our log. Others may quote a text: only count them."""
    assert process.stderr is not None
    others = 0
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            others += 1
            continue
        if not line:
            break
        others += not _pass_on_line(line)
    if others:
        log.warning("embedding_output", lines=others)


def _pass_on_line(line: bytes) -> bool:
    try:
        fields = orjson.loads(line)
        level, event = fields.pop("level"), fields.pop("event")
        fields.pop("time")
    except (orjson.JSONDecodeError, KeyError, AttributeError, TypeError):
        return False
    report = {"info": log.info, "warning": log.warning, "error": log.error}.get(level)
    if report is None or not str(event).startswith("embedding_"):
        return False
    report(event, **fields)
    return True


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let it end by itself, as the end of its pipe tells it to; then kill it."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), FAREWELL_SECONDS)
    _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
