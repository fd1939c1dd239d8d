"""Proxies that a test can cut, slow down or fragment, to the database or to the application."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# ReadyForQuery of PostgreSQL's protocol.
READY = b"Z\x00\x00\x00\x05"
# SO_LINGER with a timeout of 0: closing sends a reset.
NO_LINGER = struct.pack("ii", 1, 0)


class Talk:
    """State of one connection: whether it is the writer's, and whether start-up is complete."""

    is_writers = False
    is_ready = False

    def hear(self, data: bytes) -> None:
        self.is_writers = self.is_writers or b"hlas writer" in data
        self.is_ready = self.is_ready or READY in data


class Wire:
    """Forwards bytes, with the faults that are set."""

    def __init__(self, dial: Callable[[], Awaitable[Streams]]) -> None:
        self._dial = dial
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        # Everything is dropped silently.
        self.silent = False
        # New connections are refused.
        self.unplugged = False
        # The delay of each piece.
        self.latency_seconds = 0.0
        # Bytes per piece; 0 does not split.
        self.slice_bytes = 0
        # The next response is lost, and the connection is closed.
        self.lose_next_answer = False
        # The next request is lost.
        self.lose_next_question = False
        self.lost = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.unplugged:
            writer.transport.abort()
            return
        there_reader, there = await self._dial()
        self._writers |= {writer, there}
        talk = Talk()
        questions = asyncio.ensure_future(self._pass(reader, there, talk, answers=False))
        answers = asyncio.ensure_future(self._pass(there_reader, writer, talk, answers=True))
        self._tasks |= {questions, answers}
        await asyncio.wait({questions, answers}, return_when=asyncio.FIRST_COMPLETED)
        for task in (questions, answers):
            task.cancel()
        for end in (writer, there):
            end.transport.abort()
            self._writers.discard(end)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        talk: Talk,
        *,
        answers: bool,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if self.silent:
                    continue
                if self._loses(talk, answers=answers):
                    return
                talk.hear(data)
                size = self.slice_bytes or len(data)
                for start in range(0, len(data), size):
                    # Yield at least once, so that the pieces are sent one by one.
                    if self.latency_seconds or self.slice_bytes:
                        await asyncio.sleep(self.latency_seconds)
                    writer.write(data[start : start + size])
                    await writer.drain()

    def _loses(self, talk: Talk, *, answers: bool) -> bool:
        lost = self.lose_next_answer if answers else self.lose_next_question
        if not lost or not self._matters(talk):
            return False
        self.lose_next_answer = self.lose_next_question = False
        self.lost += 1
        return True

    def _matters(self, talk: Talk) -> bool:
        del talk
        return True

    def cut(self) -> None:
        """Close both ends."""
        for writer in list(self._writers):
            writer.transport.abort()

    def reset(self) -> None:
        """Send a reset to both ends; data in transit is lost."""
        for writer in list(self._writers):
            end: socket.socket = writer.get_extra_info("socket")
            if end.family != socket.AF_UNIX:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            writer.transport.abort()

    async def close(self) -> None:
        self.unplugged = True
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Cable(Wire):
    """A proxy to the database, at `url`. Losses apply to the writer's connection."""

    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        query = parse_qs(parts.query)
        path = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        super().__init__(lambda: asyncio.open_unix_connection(path))
        self._credentials = parts.netloc.rpartition("@")[0]
        self._database = parts.path

    @property
    def url(self) -> str:
        return (
            f"postgresql://{self._credentials}@127.0.0.1:{self.port}{self._database}"
            "?sslmode=disable"
        )

    def _matters(self, talk: Talk) -> bool:
        return talk.is_writers and talk.is_ready


@asynccontextmanager
async def open_cable(target_url: str) -> AsyncIterator[Cable]:
    cable = Cable(target_url)
    async with _listen(cable):
        yield cable


@asynccontextmanager
async def open_wire(target_url: str) -> AsyncIterator[Wire]:
    """A proxy between a client and the application at this address."""
    parts = urlsplit(target_url)
    wire = Wire(lambda: asyncio.open_connection(parts.hostname, parts.port))
    async with _listen(wire):
        yield wire


@asynccontextmanager
async def _listen(wire: Wire) -> AsyncIterator[None]:
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()
