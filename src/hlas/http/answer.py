"""Every outcome of a request becomes its answer here, whichever way the request took."""

import time
from functools import lru_cache
from typing import NamedTuple, Protocol

import orjson

from hlas import errors, log
from hlas.http.cors import Readers, readable
from hlas.http.headers import security_headers
from hlas.http.request import Header, Headers, Request
from hlas.limits.addresses import TrustedProxies
from hlas.observe.metrics import Metrics
from hlas.observe.traces import Traces

JSON: Header = (b"content-type", b"application/json")
# An answer for one visitor, which no cache may keep.
PRIVATE = (JSON, (b"cache-control", b"no-store"))
# A client that leaves more of a stream unread is cut off; it may resume.
UNREAD_STREAM_BYTES = 1024 * 1024


class Sink(Protocol):
    """Takes a body piece by piece."""

    @property
    def unsent(self) -> int:
        """Bytes that are still on this side."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class Stream(Protocol):
    """A body that goes on after the headers, from whoever has something to write."""

    def open(self, sink: Sink) -> None:
        """The headers have been sent."""

    def close(self) -> None:
        """The client has gone, or the server stops; harmless when it has ended."""


class Answer(NamedTuple):
    """What a route has to say; the headers that every answer has are added by `Finish`."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    stream: Stream | None = None


def render(error: Exception, request_id: str) -> Answer:
    """The only rendering of an error; whatever is not ours is a bare 500."""
    known = error if isinstance(error, errors.HlasError) else errors.HlasError()
    own = [(name.lower().encode(), value.encode()) for name, value in known.headers.items()]
    return Answer(known.status, (*own, JSON), orjson.dumps(known.body(request_id)))


def complete(headers: tuple[Header, ...], reader: bytes | None, *, tls: bool) -> tuple[Header, ...]:
    """A route's headers, and those that every answer has."""
    has_policy = any(name == b"content-security-policy" for name, _ in headers)
    secure = security_headers(own_policy=has_policy, tls=tls)
    return (*headers, *readable(reader), *secure)


def as_lines(headers: Headers) -> bytes:
    """Headers as they stand in an HTTP response."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


@lru_cache(maxsize=4096)
def _lines(headers: tuple[Header, ...], reader: bytes | None, tls: bool) -> bytes:  # noqa: FBT001  # as cached
    return as_lines(complete(headers, reader, tls=tls))


class Finish:
    """Status, headers and body of every outcome; one log line, one count and one span of each."""

    def __init__(
        self, metrics: Metrics, readers: Readers, proxies: TrustedProxies, traces: Traces | None
    ) -> None:
        self._metrics = metrics
        self._readers = readers
        self._proxies = proxies
        self._traces = traces

    def explain(self, request: Request, error: Exception) -> Answer:
        """The error as the client sees it; the log gets more details."""
        self.report(request, error)
        return render(error, request.id)

    def refuse(self, request: Request, error: errors.HlasError, *, logged: bool) -> Answer:
        """The complete answer to what never became a request."""
        answer = render(error, request.id)
        if logged:
            outside = log.enter(request.context)
            self.account(request, answer.status)
            log.leave(outside)
        headers = complete(answer.headers, None, tls=self.is_tls(request))
        return answer._replace(headers=(*headers, (b"x-request-id", request.id.encode())))

    async def headers(self, request: Request, answer: Answer) -> list[Header]:
        """Every header of an answer but its length."""
        reader = await self._readers.find(request, answer.status)
        headers = complete(answer.headers, reader, tls=self.is_tls(request))
        return [*headers, (b"x-request-id", request.id.encode())]

    async def lines(self, request: Request, answer: Answer) -> bytes:
        """The same as lines of HTTP."""
        reader = await self._readers.find(request, answer.status)
        lines = _lines(answer.headers, reader, self.is_tls(request))
        return b"%bx-request-id: %b\r\n" % (lines, request.id.encode())

    def is_tls(self, request: Request) -> bool:
        """Whether the visitor came over TLS, as far as we see or a proxy that we trust says."""
        if request.scheme == "https" or not self._proxies:
            return request.scheme == "https"
        forwarded = request.raw(b"x-forwarded-proto")
        return list(forwarded) == [b"https"] and self._proxies.trust(request.peer)

    def is_direct(self, request: Request) -> bool:
        """The connection is the client's own, not one that a proxy shares among many."""
        return bool(request.peer) and not self._proxies.trust(request.peer)

    def report(self, request: Request, error: Exception) -> None:
        """The one log event and count of a refusal."""
        metrics, route = self._metrics, request.route
        match error:
            case errors.RateLimited():
                log.warning("blocked", reason=error.code, scope=error.limit_scope, route=route)
                metrics.blocked(error.code, error.limit_scope, route)
            case errors.PayloadTooLarge() | errors.TextTooLong():
                log.warning("blocked", reason=error.code, scope="request", route=route)
                metrics.blocked(error.code, "request", route)
            case (
                errors.AuthenticationError()
                | errors.ConversationNotFound()
                | errors.ConversationMismatch()
                | errors.OriginMismatch()
                | errors.TenantMismatch()
            ):
                log.warning("auth_denied", reason=error.code, route=route)
                metrics.auth_denied(error.code, getattr(error, "tenant_id", None))
            case errors.HlasError() if error.status < 500:
                log.debug("refused", error_code=error.code, route=route)
            case errors.HlasError():
                log.error("error", error_code=error.code, route=route)
            case _:
                # The kind and the place, never the message: it may quote what a visitor wrote.
                log.error(
                    "error",
                    error_code="internal_error",
                    error=type(error).__name__,
                    where=log.find_place(error),
                    route=route,
                )

    def account(self, request: Request, status: int) -> None:
        """The request is over: one line, one count, one span."""
        seconds, route = time.perf_counter() - request.started, request.route
        self._metrics.request(request.method, route, status, seconds)
        log.info(
            "request",
            method=request.method,
            route=route,
            status=status,
            duration_ms=round(seconds * 1000, 2),
        )
        if self._traces is not None:
            self._traces.record(request, status, seconds)
