"""A client for live conversations: many open streams, and messages at a steady rate."""

import asyncio
import re
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Self

from bench import load
from bench.client import KEY, connect
from bench.store import Conversation

OPENING_AT_ONCE = 50
CONNECTIONS = 32
_CREATED = re.compile(rb'"created_at" : "([^"]+)"')


class _Stream(asyncio.Protocol):
    """One open stream. It keeps nothing but when messages were created, and when they came."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.is_open = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Seconds from the start of the message's transaction to its arrival here.
        self.delays: list[float] = []
        self.answered = asyncio.Event()
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.time()
        *frames, self._rest = (self._rest + data).split(b"\n\n")
        for frame in frames:
            if not self.is_open and b"data-state" in frame:
                self.is_open = True
                self.opened.set_result(None)
                # Those of messages that were there before.
                self.delays.clear()
            elif b"data-message" in frame and (found := _CREATED.search(frame)):
                created = datetime.fromisoformat(found[1].decode())
                self.delays.append(now - created.timestamp())
                if b'"role" : "assistant"' in frame:
                    self.answered.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if not self.opened.done():
            self.opened.set_exception(error or ConnectionResetError("the stream was not opened"))


class Readers:
    """A stream of each of these conversations, from its last message on, until the end."""

    def __init__(self, port: int, conversations: Iterable[Conversation]) -> None:
        self._port = port
        self._conversations = list(conversations)
        self._streams: dict[Conversation, _Stream] = {}

    async def __aenter__(self) -> Self:
        turns = asyncio.Semaphore(OPENING_AT_ONCE)

        async def open_stream(conversation: Conversation) -> None:
            async with turns:
                loop = asyncio.get_running_loop()
                _, stream = await loop.create_connection(_Stream, "127.0.0.1", self._port)
                self._streams[conversation] = stream
                stream.transport.write(load.stream_open(conversation).encode())
                await asyncio.wait_for(stream.opened, 30)

        await asyncio.gather(*map(open_stream, self._conversations))
        return self

    async def __aexit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.transport.abort()

    @property
    def delays(self) -> list[float]:
        return [delay for stream in self._streams.values() for delay in stream.delays]

    def require_open(self) -> None:
        if closed := sum(not stream.is_open for stream in self._streams.values()):
            raise RuntimeError(f"{closed} of {len(self._streams)} streams were closed")

    async def ask_in_turns(self, seconds: float) -> float:
        """Answers a second, where each visitor asks again as soon as they see the answer."""
        started, prefix = time.perf_counter(), f"{time.time_ns():x}"
        answers = 0

        async def visit(conversation: Conversation, stream: _Stream) -> None:
            nonlocal answers
            [request] = load.sends([conversation])
            connection = await connect(self._port)
            while time.perf_counter() < started + seconds:
                stream.answered.clear()
                await connection.send(request.replace(KEY, f"{prefix}-{answers}", 1).encode())
                await asyncio.wait_for(stream.answered.wait(), 30)
                answers += 1
            connection.transport.close()

        await asyncio.gather(*(visit(*one) for one in self._streams.items()))
        return answers / (time.perf_counter() - started)


async def send_steadily(port: int, requests: list[str], rate: float, seconds: float) -> int:
    """Send these requests in turn, so many a second, and require that all are accepted."""
    free: asyncio.Queue[int] = asyncio.Queue()
    connections = [await connect(port) for _ in range(CONNECTIONS)]
    for number in range(CONNECTIONS):
        free.put_nowait(number)
    prefix, started = f"{time.time_ns():x}", time.perf_counter()
    statuses: list[int] = []

    async def send(number: int, text: str) -> None:
        statuses.append(await connections[number].send(text.encode()))
        free.put_nowait(number)

    async with asyncio.TaskGroup() as tasks:
        for count in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, started + count / rate - time.perf_counter()))
            text = requests[count % len(requests)].replace(KEY, f"{prefix}-{count}", 1)
            tasks.create_task(send(await free.get(), text))
    for connection in connections:
        connection.transport.close()
    if set(statuses) != {200}:
        raise RuntimeError(f"some messages were refused: {sorted(set(statuses))}")
    return len(statuses)
