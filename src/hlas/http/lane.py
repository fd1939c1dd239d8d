"""The lane: what visitors call most, answered inside the HTTP protocol.

A line is the whole way of one route, a coroutine function from a request to its answer. The
framework runs the same lines for whatever the lane declines.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context
from typing import Any, ClassVar, NamedTuple, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from hlas import errors, log
from hlas.http import body
from hlas.http.answer import UNREAD_STREAM_BYTES, Answer, Finish, Stream, as_lines
from hlas.http.request import Header, Headers, Request


class Line(NamedTuple):
    """One route of the lane."""

    run: Callable[[Request], Coroutine[Any, Any, Answer]]
    # Without a task: for what waits only for plain futures, as the database's pool does not.
    in_place: bool = False


CLOSE: Header = (b"connection", b"close")


class Lane:
    """The lines of a worker."""

    def __init__(self, lines: Mapping[tuple[str, str], Line], finish: Finish, largest: int) -> None:
        """`lines` by method and route template; `largest` is that of a body."""
        self.finish = finish
        self.largest = largest
        self._exact = {key: line for key, line in lines.items() if "{" not in key[1]}
        self._templates = [
            (method, re.compile(re.sub(r"\{\w+\}", "([^/]+)", template)), template, line)
            for (method, template), line in lines.items()
            if "{" in template
        ]

    def find(self, request: Request) -> Line | None:
        """The line of a request, which then knows its route."""
        line = self._exact.get((request.method, request.path))
        if line is not None:
            request.route = request.path
            return line
        for method, pattern, template, templated in self._templates:
            found = pattern.fullmatch(request.path) if method == request.method else None
            if found:
                request.route = template
                return templated
        return None

    def refuse(
        self, request: Request, error: errors.HlasError, common: Headers, *, logged: bool
    ) -> bytes:
        """The whole answer to what never became a request; it is the last on its connection."""
        answer = self.finish.refuse(request, error, logged=logged)
        return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (
            STATUS_LINE[answer.status],
            as_lines(common),
            as_lines(answer.headers),
            len(answer.body),
            answer.body,
        )


class Connection(Protocol):
    """What an exchange needs of the connection it came on."""

    transport: Any
    server_state: Any
    tasks: set[asyncio.Task[None]]

    stream: Stream | None

    def on_response_complete(self) -> None: ...

    def hold_back(self) -> None: ...


class _Nobody:
    """uvicorn wakes whoever reads a body; here nobody waits for that."""

    def set(self) -> None: ...


class Exchange:
    """One request in the lane, from its headers to its answer; for uvicorn it is a cycle."""

    __slots__ = (
        "_connection",
        "_context",
        "_has_ended",
        "_in_place",
        "_lane",
        "_pieces",
        "_running",
        "_size",
        "_trouble",
        "_waiter",
        "disconnected",
        "is_started",
        "keep_alive",
        "response_complete",
    )

    message_event: ClassVar = _Nobody()

    def __init__(self, lane: Lane, connection: Connection, request: Request, line: Line) -> None:
        self._lane = lane
        self._connection = connection
        # Its own context, so that log fields of one request do not reach another.
        self._context = Context()
        request.read = self._read
        self._pieces: list[bytes] = []
        self._size = 0
        self._trouble: Exception | None = None
        # Who waits for the body.
        self._waiter: Exchange | asyncio.Future[None] | None = None
        self._has_ended = False
        self.is_started = False
        self._in_place = line.in_place
        # No reference to the request: it would be a cycle that only the garbage collector frees.
        self._running = self._run(line, request)
        self.keep_alive = True
        self.response_complete = False
        self.disconnected = False

    async def _run(self, line: Line, request: Request) -> None:
        finish, status = self._lane.finish, 500
        log.enter(request.context)
        try:
            try:
                body.check(request, self._lane.largest)
                answer = await line.run(request)
            except Exception as error:  # noqa: BLE001  # every outcome is an answer
                answer = finish.explain(request, error)
            self._send(request, answer, await finish.lines(request, answer))
            status = answer.status
        except Exception as error:  # noqa: BLE001  # the connection is of no use any more
            finish.report(request, error)
            self._connection.transport.abort()
        finally:
            finish.account(request, status)

    def start(self) -> None:
        """Begin, with the whole body where it came with the headers."""
        self.is_started = True
        if self._in_place:
            self._context.run(self.step)
            return
        tasks = self._connection.tasks
        task = asyncio.get_running_loop().create_task(self._running, context=self._context)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def step(self, _: object = None) -> None:
        """Run the line until it waits; what it waits for calls this again.

        As a task does, at less cost and without waiting for a turn of its own (ADR-0008).
        """
        try:
            waiting = self._running.send(None)
        except StopIteration:
            return
        if waiting is not self:
            waiting._asyncio_future_blocking = False  # noqa: SLF001  # the protocol of awaiting
            waiting.add_done_callback(self.step, context=self._context)

    async def _read(self) -> bytes:
        """The whole body."""
        if not self._has_ended:
            self._waiter = self if self._in_place else asyncio.get_running_loop().create_future()
            await self._waiter
        if self._trouble is not None:
            raise self._trouble
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def __await__(self) -> Generator["Exchange", None, None]:
        """Until the body is here."""
        yield self

    def feed(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._lane.largest:
            self.end(errors.PayloadTooLarge())
        elif not self._has_ended:
            self._pieces.append(piece)

    def end(self, trouble: Exception | None = None) -> None:
        """The body is here, or never will be."""
        if not self._has_ended:
            self._has_ended = True
            self._trouble = trouble
            self.keep_alive = self.keep_alive and trouble is None
            if not self.is_started:
                self.start()
                return
            if self._waiter is self:
                self._context.run(self.step)
            elif isinstance(self._waiter, asyncio.Future):
                self._waiter.set_result(None)

    def _send(self, request: Request, answer: Answer, lines: bytes) -> None:
        """The whole answer in one write."""
        connection = self._connection
        if answer.stream is not None:
            self._begin(answer, answer.stream, lines)
            return
        self.response_complete = True
        if answer.status == 429 and self._lane.finish.is_direct(request):
            connection.hold_back()
        if not connection.transport.is_closing():
            is_last = CLOSE in answer.headers
            connection.transport.write(
                b"%b%b%b%b%b\r\n%b"
                % (
                    STATUS_LINE[answer.status],
                    _common(connection.server_state.default_headers),
                    lines,
                    b"" if self.keep_alive or is_last else b"connection: close\r\n",
                    b"" if answer.status == 204 else b"content-length: %d\r\n" % len(answer.body),
                    answer.body,
                )
            )
            if is_last or not self.keep_alive:
                connection.transport.close()
        connection.on_response_complete()

    def _begin(self, answer: Answer, stream: Stream, lines: bytes) -> None:
        """The headers; the body follows in chunks."""
        connection = self._connection
        connection.transport.write(
            b"%b%b%b%btransfer-encoding: chunked\r\n\r\n"
            % (
                STATUS_LINE[answer.status],
                _common(connection.server_state.default_headers),
                lines,
                b"" if self.keep_alive else b"connection: close\r\n",
            )
        )
        connection.stream = stream
        stream.open(self)
        if connection.transport.is_closing():
            # The client left while the stream was being prepared.
            stream.close()

    @property
    def unsent(self) -> int:
        unsent: int = self._connection.transport.unsent
        return unsent

    def write(self, data: bytes) -> None:
        """One chunk of a stream. A client that does not read is cut off; it may resume."""
        transport = self._connection.transport
        if transport.unsent > UNREAD_STREAM_BYTES:
            transport.abort()
        elif not transport.is_closing():
            transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self) -> None:
        """The end of a stream."""
        connection = self._connection
        connection.stream = None
        self.response_complete = True
        if not connection.transport.is_closing():
            connection.transport.write(b"0\r\n\r\n")
            if not self.keep_alive:
                connection.transport.close()
        connection.on_response_complete()


_default: tuple[object, bytes] = (None, b"")


def _common(headers: list[Header]) -> bytes:
    """What uvicorn sends with every answer; it makes a new list when the date changes."""
    global _default  # noqa: PLW0603  # a cache of one
    if _default[0] is not headers:
        _default = headers, as_lines(headers)
    return _default[1]
