"""MCP over the standard input and output of a program that an operator named."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from hlas.agent.tools.mcp.protocol import (
    LARGEST_ANSWER,
    Json,
    McpError,
    SessionLost,
    answer_server,
    is_request,
    read_result,
)

# A program that ends right after its start is not started again sooner than this.
RESTART_SECONDS = 5.0
FAREWELL_SECONDS = 1.0
# What a program gets of our environment; the rest may be secret.
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")


class StdioTransport:
    """One process, started with the first message and again after it has ended, until closed."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._unasked = 0
        self._next_start = 0.0
        self._starting = asyncio.Lock()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The id of the process that runs now."""
        process = self._find_running()
        return process.pid if process is not None else None

    async def exchange(self, message: Json, headers: Mapping[str, str], seconds: float) -> Json:
        del headers, seconds  # HTTP has these; the caller limits the time
        is_opening = message["method"] in {"initialize", "server/discover"}
        if self._find_running() is None and not is_opening:
            raise SessionLost
        number = message["id"]
        assert isinstance(number, int)
        async with self._starting:
            if self._is_closed:
                raise McpError("closed", "the program is no longer used")
            process = self._find_running() or await self._start()
        waiting = self._waiting
        answer = waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._write(process, message)
            return read_result(await answer, number)
        except asyncio.CancelledError:
            cancelled = {"requestId": number, "reason": "timeout"}
            with suppress(McpError):
                self._put(process, {"method": "notifications/cancelled", "params": cancelled})
            raise
        finally:
            waiting.pop(number, None)

    async def notify(self, message: Json, headers: Mapping[str, str], seconds: float) -> None:
        del headers, seconds
        process = self._find_running()
        if process is not None:
            await self._write(process, message)

    async def close(self) -> None:
        self._is_closed = True
        # A program that is being started is ended, too.
        async with self._starting:
            process, reader = self._process, self._reader
        if process is None or reader is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), FAREWELL_SECONDS)
        _kill(process)
        await reader

    def _find_running(self) -> asyncio.subprocess.Process | None:
        process = self._process
        if process is not None and process.returncode is not None:
            # What it started may still hold its output open, so the reader does not see the end.
            _kill(process)
            self._process = None
        return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        now = asyncio.get_running_loop().time()
        if now < self._next_start:
            raise McpError("ended", "the program has ended; it is started again in a few seconds")
        self._next_start = now + RESTART_SECONDS
        environment = _make_environment()
        program = shutil.which(self._command[0], path=environment["PATH"])
        if program is None:
            raise McpError("no_program", "there is no such program")
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *self._command[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=LARGEST_ANSWER,
                env=environment,
                cwd="/",
                # A group of its own, so that what it starts ends with it.
                start_new_session=True,
            )
        except OSError:
            raise McpError("no_program", "the program cannot be started") from None
        self._process, self._waiting, self._unasked = process, {}, 0
        self._reader = asyncio.create_task(self._read(process), name="mcp program")
        return process

    async def _write(self, process: asyncio.subprocess.Process, message: Json) -> None:
        self._put(process, message)
        assert process.stdin is not None
        try:
            await process.stdin.drain()
        except (OSError, RuntimeError):
            raise _ended() from None

    def _put(self, process: asyncio.subprocess.Process, message: Json) -> None:
        assert process.stdin is not None
        if process.stdin.is_closing():
            raise _ended()
        process.stdin.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Read until the program ends, or writes a line that is too long, or too much unasked."""
        assert process.stdout is not None
        waiting = self._waiting
        try:
            while line := await process.stdout.readline():
                self._receive(process, line)
                if self._unasked > LARGEST_ANSWER:
                    break
        except (OSError, ValueError):
            pass  # it is ended below
        finally:
            _kill(process)
            await process.wait()
            if self._process is process:
                self._process = None
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(_ended())

    def _receive(self, process: asyncio.subprocess.Process, line: bytes) -> None:
        self._unasked += len(line)
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            return  # some programs greet people
        if is_request(message):
            with suppress(McpError):
                self._put(process, answer_server(message))
            return
        number = message.get("id") if isinstance(message, dict) else None
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is not None and not answer.done():
            self._unasked = 0
            answer.set_result(message)


def _ended() -> McpError:
    return McpError("ended", "the program ended before it answered")


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _make_environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # `python` is the one that runs Hlas, also where its environment is not activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**passed, "PATH": path}
