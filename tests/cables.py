"""A cable between the application and the database that a test can cut at the worst moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

# The database's word for "ask me".
READY = b"Z\x00\x00\x00\x05"


class Talk:
    """What is known of one connection: whose it is, and whether it is past its greetings."""

    is_writers = False
    is_ready = False

    def hear(self, data: bytes) -> None:
        self.is_writers = self.is_writers or b"hlas writer" in data
        self.is_ready = self.is_ready or READY in data


class Cable:
    """Passes bytes on; `url` is the way through it."""

    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        query = parse_qs(parts.query)
        self._socket = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        self._credentials = parts.netloc.rpartition("@")[0]
        self._database = parts.path
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        # The next answer to the writer is lost, and the connection with it.
        self.lose_next_answer = False
        # The writer's next question never gets to the database.
        self.lose_next_question = False
        # Everything is lost, silently.
        self.silent = False
        # New connections are refused.
        self.unplugged = False
        self.lost = 0

    @property
    def url(self) -> str:
        return (
            f"postgresql://{self._credentials}@127.0.0.1:{self.port}{self._database}"
            "?sslmode=disable"
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.unplugged:
            writer.transport.abort()
            return
        there_reader, there = await asyncio.open_unix_connection(self._socket)
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
                if talk.is_writers and talk.is_ready and self._is_lost(answers=answers):
                    return
                talk.hear(data)
                writer.write(data)
                await writer.drain()

    def _is_lost(self, *, answers: bool) -> bool:
        lost = self.lose_next_answer if answers else self.lose_next_question
        if lost:
            self.lose_next_answer = self.lose_next_question = False
            self.lost += 1
        return lost

    def cut(self) -> None:
        """Both ends learn at once that the other is gone."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def close(self) -> None:
        self.unplugged = True
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def plugged(target_url: str) -> AsyncIterator[Cable]:
    cable = Cable(target_url)
    server = await asyncio.start_server(cable.serve, "127.0.0.1", 0)
    cable.port = server.sockets[0].getsockname()[1]
    try:
        yield cable
    finally:
        await cable.close()
        server.close()
        await server.wait_closed()
