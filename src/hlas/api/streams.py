"""Streams of conversations, as routes answer with them."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from starlette.responses import StreamingResponse

from hlas import errors, log
from hlas.conversations import frames
from hlas.conversations.frames import Cursor
from hlas.conversations.readers import KEEP_ALIVE_SECONDS, ListReader, Reader
from hlas.http.answer import UNREAD_STREAM_BYTES, Answer, Sink, Stream
from hlas.http.request import Request
from hlas.http.streams import Place
from hlas.services import Services

# Report at most one change per second.
LIST_SECONDS = 1.0
LIST_CHANGED = b"event: change\ndata:\n\n"


class ConversationStream:
    """A reader of a conversation, counted while it is open."""

    def __init__(
        self, services: Services, reader: Reader, places: Sequence[Place], route: str
    ) -> None:
        """Raise if there are too many streams in one of the places."""
        services.streams.require_room(places, route)
        self._context = dict(log.current())
        self._services = services
        self._reader = reader
        self._places = places

    def open(self, sink: Sink) -> None:
        self._services.streams.enter(self._places)
        self._reader.on_end = self._end
        self._services.live.open(self._reader, sink)

    def close(self) -> None:
        self._services.live.leave(self._reader)

    def _end(self) -> None:
        self._services.streams.leave(self._places)
        # Whatever ends the stream, the line is about the request that opened it.
        outside = log.enter(self._context)
        log.info("stream_closed", duration_ms=round(self._reader.seconds * 1000))
        log.leave(outside)


class ListStream:
    """Tells when conversations of a tenant change, for at most `seconds`."""

    def __init__(
        self,
        services: Services,
        reader: ListReader,
        places: Sequence[Place],
        route: str,
        seconds: float,
    ) -> None:
        """Raise if there are too many streams in one of the places."""
        services.streams.require_room(places, route)
        self._services = services
        self._places = places
        self._reader = reader
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    def open(self, sink: Sink) -> None:
        self._task = asyncio.create_task(self._run(sink))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, sink: Sink) -> None:
        started = time.monotonic()
        self._services.streams.enter(self._places)
        try:
            async with asyncio.timeout(self._seconds):
                await self._report(sink)
        except TimeoutError:
            pass  # the client connects again, and its sign-in is checked
        finally:
            self._services.streams.leave(self._places)
            sink.close()
            log.info("stream_closed", duration_ms=round((time.monotonic() - started) * 1000))

    async def _report(self, sink: Sink) -> None:
        reader = self._reader
        sink.write(frames.OPENING)
        with self._services.live.watch_list(reader):
            while not reader.ended.is_set():
                try:
                    await asyncio.wait_for(reader.changed.wait(), KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    sink.write(frames.KEEP_ALIVE)
                    continue
                reader.changed.clear()
                sink.write(LIST_CHANGED)
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.ended.wait(), LIST_SECONDS)


class _Pieces:
    """A body for the framework, which asks for the next piece."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._bytes = 0

    @property
    def unsent(self) -> int:
        return self._bytes

    def write(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > UNREAD_STREAM_BYTES:
            self._stream.close()
        else:
            self._pieces.put_nowait(data)

    def close(self) -> None:
        self._pieces.put_nowait(None)

    async def read(self) -> AsyncIterator[bytes]:
        self._stream.open(self)
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
                self._bytes -= len(piece)
        finally:
            self._stream.close()


def find_cursor(request: Request, after: int) -> Cursor:
    """Last-Event-ID if it was sent, else `after`."""
    given = request.values(b"last-event-id")
    if not given:
        return Cursor(after)
    cursor = Cursor.parse(given[0]) if len(given) == 1 else None
    if cursor is None:
        raise errors.InvalidRequest.at("header", "Last-Event-ID", kind="invalid_cursor")
    return cursor


def respond(answer: Answer) -> StreamingResponse:
    """An answer with a stream, for the framework."""
    assert answer.stream is not None
    response = StreamingResponse(_Pieces(answer.stream).read(), answer.status)
    response.raw_headers = list(answer.headers)
    return response
