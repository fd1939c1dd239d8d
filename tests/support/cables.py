"""Wires that a test can cut, slow down or slice: to the database, or from client to application."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# The database's word for "ask me".
READY = b"Z\x00\x00\x00\x05"
# Closed with nothing left to say: the other side gets a reset.
NO_LINGER = struct.pack("ii", 1, 0)


class Talk:
    """What is known of one connection: whose it is, and whether it is past its greetings."""

    is_writers = False
    is_ready = False

    def hear(self, data: bytes) -> None:
        self.is_writers = self.is_writers or b"hlas writer" in data
        self.is_ready = self.is_ready or READY in data


class Wire:
    """Passes bytes on, as badly as it is told to."""

    def __init__(self, dial: Callable[[], Awaitable[Streams]]) -> None:
        self._dial = dial
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        # Everything is lost, silently.
        self.silent = False
        # New connections are refused.
        self.unplugged = False
        # What every piece waits before it goes on.
        self.latency_seconds = 0.0
        # So many bytes at a time, each piece on its own; 0 leaves them together.
        self.slice_bytes = 0
        # The next answer is lost, and the connection with it.
        self.lose_next_answer = False
        # The next question never arrives.
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
                    # A turn of the loop at least, so that the pieces leave one by one.
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
        """Both ends learn at once that the other is gone."""
        for writer in list(self._writers):
            writer.transport.abort()

    def reset(self) -> None:
        """The same in the rude way: what was under way is thrown away."""
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
    """To the database; `url` is the way through it. What it is told to lose is the writer's."""

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
async def plugged(target_url: str) -> AsyncIterator[Cable]:
    cable = Cable(target_url)
    async with _listening(cable):
        yield cable


@asynccontextmanager
async def wired(target_url: str) -> AsyncIterator[Wire]:
    """Between a client and the application at this address."""
    parts = urlsplit(target_url)
    wire = Wire(lambda: asyncio.open_connection(parts.hostname, parts.port))
    async with _listening(wire):
        yield wire


@asynccontextmanager
async def _listening(wire: Wire) -> AsyncIterator[None]:
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    wire.port = server.sockets[0].getsockname()[1]
    try:
        yield
    finally:
        await wire.close()
        server.close()
        await server.wait_closed()
