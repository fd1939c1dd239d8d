"""The HTTP server: uvicorn with httptools, plus protection against hostile clients.

Slow headers and bodies close the connection, headers are bounded, and bytes that are not valid HTTP
get an answer in our error format.
"""

import asyncio
import gc
from typing import Any, ClassVar
from urllib.parse import unquote
from weakref import WeakKeyDictionary

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from hlas import errors
from hlas.errors import HeadersTooLarge, InvalidHttp
from hlas.http.answer import Stream
from hlas.http.asgi import REQUEST
from hlas.http.body import UPLOADS
from hlas.http.connections import Connections
from hlas.http.lane import Exchange, Lane
from hlas.http.request import Request, is_ambiguous
from hlas.http.transport import Transport

READ_SECONDS = 10.0
# For documents that administrators upload.
UPLOAD_SECONDS = 60.0
SWEEP_SECONDS = 1.0
HEADER_BYTES = 32 * 1024
KEEP_ALIVE_SECONDS = 20.0
LINGER_SECONDS = 2.0
HOLD_BACK_SECONDS = 0.25
# Requests that wait for the answer to an earlier one; no browser sends any.
PIPELINED = 64
LINGER_BYTES = 4 * 1024 * 1024
# New objects between two runs of the garbage collector.
GARBAGE_OBJECTS = 20_000


class Connection(HttpToolsProtocol):
    """One sweep a second looks for requests that take too long to arrive, for answers that are
    not read, and for connections that nobody uses any more: no timer each.
    """

    _sweeping: ClassVar[WeakKeyDictionary[ServerState, asyncio.TimerHandle]] = WeakKeyDictionary()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._reading_since: float | None = None
        self._active_at = 0.0
        # What came since the last byte of a body: headers, sizes of chunks, trailers.
        self._header_bytes = 0
        self._chunk_bytes = 0
        self._in_headers = True
        self._lane: Lane = self.app_state["lane"]
        self._open: Connections = self.app_state["connections"]
        self._is_counted = False
        # The request in the lane whose body is still coming.
        self._exchange: Exchange | None = None
        # The answer under way, if it is a stream.
        self.stream: Stream | None = None
        self._held_back: asyncio.TimerHandle | None = None
        self._is_unreadable = False
        # A refusal of what cannot be read, which ends the connection when all else is answered.
        self._last_words: errors.HlasError | None = None
        self.lingered: int | None = None
        # An answer is complete, and too much of it is unread to start another.
        self._waits_for_reader = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.transport: Transport = Transport(transport, self)  # type: ignore[assignment]  # stands in for it
        # Silence is slow, too: the clock starts with the connection.
        self._reading_since = self.loop.time()
        if self.server_state not in self._sweeping:
            self._sweep()
        self._is_counted = self._open.enter(self.client)
        if not self._is_counted:
            # Without lingering: that would be one more open connection.
            refusal = errors.RateLimited("ip", {"Retry-After": "1", "Connection": "close"})
            self.transport.write(self._render(refusal, logged=False))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.lingered is not None:
            self.lingered += len(data)
            if self.lingered > LINGER_BYTES:
                self.transport.abort()
            return
        if self._is_unreadable:
            # What is behind a request that could not be read is never parsed.
            return
        self._chunk_bytes = len(data)
        self._header_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raised = error.__context__
            self._refuse(raised if isinstance(raised, errors.HlasError) else InvalidHttp())
            return
        if self._header_bytes > HEADER_BYTES:
            self._refuse(HeadersTooLarge())
        elif self._exchange is not None and not self._exchange.is_started:
            # Its body is not complete: what can be said by its headers is said now.
            self._exchange.start()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_headers = True
        self._header_bytes = 0
        if self._reading_since is None:
            self._reading_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_headers:
            # A trailer. Proxies check and replace headers, and pass these on as they are.
            raise InvalidHttp
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        # A first piece may hold all the headers and a body, so only its headers are measured.
        if self._header_bytes > HEADER_BYTES or self._chunk_bytes > HEADER_BYTES:
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > HEADER_BYTES:
                raise HeadersTooLarge
        request, version = self._make_request(), self.parser.get_http_version()
        # Nothing here is upgraded, nor a tunnel. The parser takes no body after either: it would
        # read a proxy's body as the next request.
        if self.parser.should_upgrade() or is_ambiguous(self.url, request, version):
            raise InvalidHttp
        expected = map(bytes.lower, request.raw(b"expect"))
        self.expect_100_continue = version == "1.1" and b"100-continue" in expected
        if len(self.pipeline) >= PIPELINED:
            self.transport.abort()
            raise InvalidHttp
        is_plain = self._is_plain()
        # In any case: a refusal before the framework has found the route names it, too.
        line = self._lane.find(request)
        if line is None or not is_plain:
            self._apply(request)
        else:
            self._exchange = Exchange(self._lane, self, request, line)
            self.cycle = self._exchange  # type: ignore[assignment]  # stands in for it
        self._in_headers = False

    def _make_request(self) -> Request:
        target, _, query = self.url.partition(b"?")
        if not target.startswith(b"/"):
            url = httptools.parse_url(self.url)
            target, query = url.path, url.query or b""
        path = target.decode("ascii")
        return Request(
            self.parser.get_method().decode("ascii"),
            unquote(path) if "%" in path else path,
            query,
            self.headers,
            self.client[0] if self.client else "",
            self.scheme or "http",
        )

    def _apply(self, request: Request) -> None:
        """Let the application have a request: what uvicorn does before and after its headers."""
        if self._reading_since is not None and UPLOADS.fullmatch(request.path):
            self._reading_since += UPLOAD_SECONDS - READ_SECONDS
        begun = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = begun
        self.scope["headers"] = self.headers
        self.scope[REQUEST] = request  # type: ignore[literal-required]  # our own key
        super().on_headers_complete()

    def _is_plain(self) -> bool:
        """A request with nothing unusual about it on a connection that has nothing else to do."""
        parser, flow = self.parser, self.flow
        return (
            (self.cycle is None or self.cycle.response_complete)
            and not (flow.write_paused or flow.read_paused or self.expect_100_continue)
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
        )

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        if self._exchange is None:
            super().on_body(body)
        else:
            self._exchange.feed(body)

    def on_message_complete(self) -> None:
        self._reading_since = None
        self._in_headers = True
        self._header_bytes = 0
        if self._exchange is None:
            super().on_message_complete()
        else:
            exchange, self._exchange = self._exchange, None
            exchange.end()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._exchange is not None:
            self._exchange.end(errors.RequestTimeout())
        if self.stream is not None:
            self.stream.close()
        if self._held_back is not None:
            self._held_back.cancel()
        if self._is_counted:
            self._open.leave(self.client)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        # Those of the framework, too, and those that are about to open.
        self.app_state["end_streams"]()

    def hold_back(self) -> None:
        """Read nothing more for a moment: back-pressure for clients that ignore Retry-After."""
        self.flow.pause_reading()
        if self._held_back is None:
            self._held_back = self.loop.call_later(HOLD_BACK_SECONDS, self._read_on)

    def _read_on(self) -> None:
        self._held_back = None
        if not self.transport.is_closing() and not self._waits_for_reader:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        """As uvicorn's, except that an idle connection has no timer, and that the next request
        waits until the client has read enough of this answer.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._active_at = self.loop.time()
        if self.flow.write_paused:
            self._waits_for_reader = True
            self.flow.pause_reading()
        else:
            self._go_on()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._waits_for_reader:
            self._waits_for_reader = False
            if not self.transport.is_closing():
                self._go_on()

    def _go_on(self) -> None:
        """Read again, and start the next request that has arrived meanwhile."""
        if self._held_back is None:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_words is not None:
            self._end_with(self._last_words)

    def _refuse(self, refusal: errors.HlasError) -> None:
        """Answer what cannot be read when its turn has come; then the connection ends."""
        self._is_unreadable = True
        if self.transport.is_closing():
            return
        if self._exchange is not None and not self._exchange.response_complete:
            # Its body cannot be read: the lane answers it, with this.
            self._exchange.end(refusal)
            self._exchange = None
            return
        if self._has_to_wait():
            self._last_words = refusal
            self.flow.pause_reading()
        elif self._in_headers or self._abandon():
            self._end_with(refusal)
        else:
            self.linger()

    def _end_with(self, refusal: errors.HlasError) -> None:
        self.transport.write(self._render(refusal, logged=True))
        self.linger()

    def _render(self, refusal: errors.HlasError, *, logged: bool) -> bytes:
        """The last answer of this connection; bytes that are not a request get an id, too."""
        peer, scheme = self.client[0] if self.client else "", self.scheme or "http"
        request = Request("OTHER", "", b"", (), peer, scheme)
        return self._lane.refuse(request, refusal, self.server_state.default_headers, logged=logged)

    def _has_to_wait(self) -> bool:
        """Whether requests before the one that cannot be read have no answer yet."""
        if self._in_headers:
            return self.cycle is not None and not self.cycle.response_complete
        if self.pipeline and self.pipeline[0][0] is self.cycle:
            # Its headers were good and its body is not: the refusal will be its answer.
            self.pipeline.popleft()
            return True
        return False

    def _abandon(self) -> bool:
        """Tell the application that the rest of a body will not come; False: it has answered."""
        if self.cycle.response_complete:
            return False
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return not self.cycle.response_started

    @property
    def answered_early(self) -> bool:
        """The answer is complete, and the request is not."""
        answered = self.cycle is not None and self.cycle.response_complete
        return answered and self._reading_since is not None

    def linger(self) -> None:
        """End our side, and read on for a moment what the client had already sent.

        Closing at once would reset the connection and take the answer away from the client.
        """
        if self.lingered is None and not self.transport.is_closing():
            self.lingered = 0
            self.flow.resume_reading()
            try:
                self.transport.write_eof()
            except OSError:
                # The client has gone, which a connection that is held back does not notice.
                self.transport.abort()
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            if isinstance(connection, Connection):
                connection.look_at_clock(now)
        if self.connections:
            handle = self.loop.call_later(SWEEP_SECONDS, self._sweep)
            self._sweeping[self.server_state] = handle
        else:
            self._sweeping.pop(self.server_state, None)

    def look_at_clock(self, now: float) -> None:
        """Give up what takes too long to come, or to be read."""
        if self.transport.is_stuck(now):
            # Also when it is closing: that waits for the client to read the rest.
            self.transport.abort()
        elif self._waits_for_reader:
            # Nothing is read meanwhile, so nothing is late.
            self._active_at = now
            self._reading_since = now if self._reading_since is not None else None
        elif not self.transport.is_closing():
            self._look_for_late(now)

    def _look_for_late(self, now: float) -> None:
        # Whatever came since the last answer and was no request does not count as use.
        between = self.cycle is None or self.cycle.response_complete
        if self._reading_since is not None:
            if self._reading_since < now - READ_SECONDS:
                self.transport.abort()
        elif between and self._active_at < now - KEEP_ALIVE_SECONDS:
            self.transport.close()


def settle() -> None:
    """Keep what the start has made out of garbage collections, which took 80 ms each."""
    gc.collect()
    gc.freeze()
    # A message leaves no cycles behind, and each collection goes through all that are under way.
    gc.set_threshold(GARBAGE_OBJECTS)


def config(app: Any, **options: Any) -> Config:
    """How uvicorn is run everywhere; options say what differs."""
    return Config(
        app,
        http=Connection,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=15,
        backlog=4096,
        # A worker that is busy is not dead.
        timeout_worker_healthcheck=60,
        **options,
    )
