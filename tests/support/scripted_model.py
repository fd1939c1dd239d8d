"""A provider of language models, over HTTP, that answers as a script says (`model_scripts`).

In a test it runs in the event loop: `async with ScriptedModel() as provider`. As a process:
`python -m scripted_model PORT RECEIPTS`, or `run_process`.
"""

import asyncio
import re
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
import uvloop

from model_scripts import (
    DONE,
    Await,
    Call,
    Cut,
    Endless,
    Finish,
    Head,
    Refuse,
    Say,
    Script,
    Send,
    Stamps,
    Step,
    Usage,
    find_text,
    follow_text,
    frame,
    frame_call,
)

Item = TypeVar("Item")


class ScriptedModel:
    """A server on this machine; counts what it is asked for, and who leaves in mid-answer."""

    def __init__(
        self,
        script: Script = follow_text,
        *,
        piece: int = 0,
        receipts: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """With `piece`, the body is sent in chunks of so many bytes.

        Each request that a provider would bill is a line of `receipts`.
        """
        self.script = script
        self.piece = piece
        self.requests: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.billed = 0
        self.connections = 0
        # Clients that closed the connection before the end of the answer.
        self.left = 0
        self._receipts = receipts
        self._tls = tls
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, limit=2**24, ssl=self._tls
        )
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The `base_url` of a model."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that this server counts is so."""
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.writers.append(writer)
        try:
            early: bytes | None = b""
            while early is not None:
                early = await self._answer(early, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            self._changed.set()
            writer.close()

    async def _answer(
        self, early: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Answer one request; return what has come of the next, or None to close."""
        head = (early + await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.strip().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        raw = await reader.readexactly(int(headers.get("content-length", 0)))
        if not request.startswith("POST ") or not request.split()[1].endswith("/chat/completions"):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return b""
        body = orjson.loads(raw)
        steps = list(self.script(body))
        self._count(body, headers, steps)
        return await self._watch(_Exchange(writer, self.piece, len(raw)).run(steps), reader)

    async def _watch(
        self, answer: Coroutine[Any, Any, bool], reader: asyncio.StreamReader
    ) -> bytes | None:
        """Answer while the client is there."""
        answering = asyncio.create_task(answer)
        watching = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() or isinstance(answering.exception(), ConnectionError):
                self.left += 1
                return None
            # The client may have read the answer and sent its next request already.
            early = watching.result() if watching.done() else b""
            return early if answering.result() else None
        finally:
            for task in (answering, watching):
                task.cancel()
                with suppress(asyncio.CancelledError, ConnectionError):
                    await task

    def _count(self, body: dict[str, Any], headers: dict[str, str], steps: list[Step]) -> None:
        self.requests.append(body)
        self.heads.append(headers)
        self._changed.set()
        first = steps[0] if steps else None
        if isinstance(first, Refuse) and first.status < 500:
            return
        self.billed += 1
        if self._receipts is not None:
            with self._receipts.open("a") as file:
                file.write(find_text(body).replace("\n", " ") + "\n")


class _Exchange:
    """One response."""

    def __init__(self, writer: asyncio.StreamWriter, piece: int, asked_bytes: int) -> None:
        self._writer = writer
        self._piece = piece
        self._head: Head | None = Head("text/event-stream; charset=utf-8")
        self._is_chunked = True
        self._usage = {"prompt_tokens": asked_bytes // 4 + 1, "completion_tokens": 0}
        self._finish: Finish | None = None
        self._reported = "once"
        self._calls = 0

    async def run(self, steps: list[Step]) -> bool:
        """Send an answer; True if the connection stays open."""
        for step in steps:
            match step:
                case Refuse():
                    return await self._refuse(step)
                case Head():
                    self._head = step
                case Finish():
                    self._finish = step
                case Usage():
                    self._reported = step.mode
                case _ if step is Cut:
                    self._writer.transport.abort()
                    return False
                case _:
                    await self._take(step)
        await self._end()
        return self._is_chunked

    async def _take(self, step: Step) -> None:
        match step:
            case Say():
                pieces = re.findall(r"\s*\S+|\s+", step.text)
                async for piece in _pace(pieces, step.seconds):
                    await self._say(piece)
            case Stamps():
                async for _ in _pace(range(step.count), step.seconds):
                    await self._say(f"{time.monotonic_ns()} ")
            case Call():
                self._usage["completion_tokens"] += 10
                await self._send(frame_call(self._calls, step))
                self._calls += 1
            case Send():
                await self._send(step.data)
            case Await():
                await step.event.wait()
            case Endless():
                while True:
                    await self._send(step.data)
                    await asyncio.sleep(0)
            case _:
                await asyncio.Event().wait()

    async def _say(self, piece: str) -> None:
        self._usage["completion_tokens"] += 1
        usage = self._usage if self._reported == "every" else None
        await self._send(frame({"content": piece}, usage=usage))

    async def _end(self) -> None:
        finish = self._finish or Finish("tool_calls" if self._calls else "stop")
        if finish.reason is not None:
            await self._send(frame({}, finish.reason))
            for usage in _list_usages(self._reported, self._usage):
                await self._send(
                    b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\n"
                )
            await self._send(DONE)
        await self._send(b"")
        if self._is_chunked:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _send(self, data: bytes) -> None:
        if self._head is not None:
            self._is_chunked = self._head.is_chunked
            encoding = "Transfer-Encoding: chunked" if self._is_chunked else "Connection: close"
            head = (
                f"HTTP/1.1 200 OK\r\nContent-Type: {self._head.content_type}\r\n{encoding}\r\n\r\n"
            )
            self._writer.write(head.encode())
            self._head = None
        size = self._piece or len(data)
        for start in range(0, len(data), size or 1):
            piece = data[start : start + size]
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
            await self._writer.drain()
            if self._piece:
                await asyncio.sleep(0)

    async def _refuse(self, step: Refuse) -> bool:
        content = b'{"error": {"message": "refused by the script"}}'
        lines = "".join(f"{name}: {value}\r\n" for name, value in step.headers)
        head = f"HTTP/1.1 {step.status} Refused\r\n{lines}Content-Length: {len(content)}\r\n\r\n"
        self._writer.write(head.encode() + content)
        await self._writer.drain()
        return True


def _list_usages(mode: str, usage: dict[str, int]) -> list[dict[str, int]]:
    match mode:
        case "none" | "every":
            return []
        case "twice":
            return [{"prompt_tokens": 1, "completion_tokens": 1}, usage]
        case "negative":
            return [{"prompt_tokens": -5, "completion_tokens": -7}]
        case "absurd":
            return [{"prompt_tokens": 10**15, "completion_tokens": 10**18}]
        case "once":
            return [usage]
        case _:
            read, _, written = mode.partition("/")
            return [{"prompt_tokens": int(read), "completion_tokens": int(written)}]


async def _pace(items: Sequence[Item], seconds: float) -> AsyncIterator[Item]:
    """Yield the items at even intervals, without drifting."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number, item in enumerate(items, 1):
        if seconds:
            await asyncio.sleep(start + seconds * number / len(items) - loop.time())
        yield item


@contextmanager
def run_process(receipts: Path, port: int = 0) -> Iterator[str]:
    """The server in a separate process; yields its `base_url`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "scripted_model", str(port), str(receipts)],
        cwd=Path(__file__).parent,
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


async def _main(port: int, receipts: Path) -> None:
    model = ScriptedModel(receipts=receipts)
    await model.start(port)
    print(model.url, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), Path(sys.argv[2])))
