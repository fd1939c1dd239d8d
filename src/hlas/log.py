"""One JSON object a line, the same request id on all of them, and a metric for every answer."""

import asyncio
import logging
import re
import sys
import time
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from contextvars import ContextVar, Token
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import orjson
import structlog
import uuid_utils
from structlog.typing import EventDict, WrappedLogger

from hlas.http.asgi import Application, Message, Receive, Scope, Send, header_values
from hlas.http.headers import security_headers
from hlas.limits.addresses import TrustedProxies
from hlas.observe.metrics import Metrics

if TYPE_CHECKING:
    from structlog.dev import ConsoleRenderer

# Where a request is going as long as no router has said so.
ROUTE = "hlas.route"
UNMATCHED = "unmatched"

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

# What is known of the request under way; every line logged meanwhile carries it.
_context: ContextVar[dict[str, Any]] = ContextVar("hlas_request")
_nowhere: Final[dict[str, Any]] = {}


class Sink:
    """Lines of one turn of the event loop leave in one write."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) > 1:
            return
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            data = b"\n".join(self._lines) + b"\n"
            self._lines.clear()
            self._stream.write(data)
            self._stream.flush()


Renderer = Callable[[EventDict], bytes]


_json: Renderer = partial(orjson.dumps, default=repr)


@cache
def _colours() -> "ConsoleRenderer":
    from structlog.dev import ConsoleRenderer  # noqa: PLC0415  # slow to load, for terminals only

    return ConsoleRenderer(colors=True, sort_keys=False)


def _console(line: EventDict) -> bytes:
    # A terminal obeys what it prints, so nothing unprintable reaches it as it is.
    for name, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[name] = repr(value)
    line["timestamp"] = str(line.pop("time"))[11:19]
    return str(_colours()(None, "", line)).encode()


_sink = Sink(sys.stderr.buffer)
_render: Renderer = _json
_threshold = logging.INFO


def configure(level: str = "info", log_format: str = "", stream: BinaryIO | None = None) -> None:
    """Send our log lines and everybody else's to one place in one shape."""
    global _sink, _render, _threshold  # noqa: PLW0603  # one process has one log
    stream = stream or sys.stderr.buffer
    _sink = Sink(stream)
    console = log_format == "console" or (not log_format and stream.isatty())
    _render = _console if console else _json
    _threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[_hand_over],
        wrapper_class=structlog.make_filtering_bound_logger(_threshold),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Foreign()], level=max(_threshold, logging.WARNING), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def flush() -> None:
    _sink.flush()


class _Foreign(logging.Handler):
    """Other libraries' records in our shape: where and how bad, and never the values in them."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {"logger": record.name, "detail": _first_line(record)}
        if record.exc_info and record.exc_info[0]:
            fields["error"] = record.exc_info[0].__name__
        report = error if record.levelno >= logging.ERROR else warning
        report("library", **fields)


def _first_line(record: logging.LogRecord) -> str:
    # Further lines hold representations of tasks and exceptions, which may quote a visitor.
    return str(record.msg).partition("\n")[0][:300]


def _hand_over(_: WrappedLogger, level: str, event: EventDict) -> EventDict:
    """Lines of modules that know structlog alone, among ours."""
    _log(level, logging.getLevelNamesMapping()[level.upper()], event.pop("event"), event)
    raise structlog.DropEvent


_millisecond = 0
_moment = ""


def _now() -> str:
    """UTC to the millisecond; under load many lines have the same."""
    global _millisecond, _moment  # noqa: PLW0603  # a cache of one
    now = int(time.time() * 1000)
    if now != _millisecond:
        second, rest = divmod(now, 1000)
        _moment = f"{_second(second)}.{rest:03}Z"
        _millisecond = now
    return _moment


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _log(level: str, number: int, event: str, fields: MutableMapping[str, Any]) -> None:
    """One line, made here: two are written a message, and structlog's chain cost a third of it."""
    if number >= _threshold:
        line = {"time": _now(), "level": level, "event": event, **fields, **_context.get(_nowhere)}
        _sink.write(_render(line))


def debug(event: str, **fields: Any) -> None:
    _log("debug", logging.DEBUG, event, fields)


def info(event: str, **fields: Any) -> None:
    _log("info", logging.INFO, event, fields)


def warning(event: str, **fields: Any) -> None:
    _log("warning", logging.WARNING, event, fields)


def error(event: str, **fields: Any) -> None:
    _log("error", logging.ERROR, event, fields)


def bind(**fields: Any) -> None:
    """Let every further line of this request carry these."""
    _context.get({}).update(fields)


def enter(fields: dict[str, Any]) -> Token[dict[str, Any]]:
    """Work on a request outside a task of its own, until `leave` or the end of the context."""
    return _context.set(fields)


def leave(token: Token[dict[str, Any]]) -> None:
    _context.reset(token)


def current() -> Mapping[str, Any]:
    """All that is bound to the request under way."""
    bound: Mapping[str, Any] = _context.get(_nowhere)
    return bound


def known(name: str) -> Any:
    """What is bound under a name to the request under way, if anything is."""
    return current().get(name)


def request_id() -> str:
    return str(current().get("request_id", ""))


class RequestMiddleware:
    """Outermost: gives the request its id, and tells afterwards how it went."""

    def __init__(
        self, app: Application, metrics: Metrics, routes: Container[str], proxies: TrustedProxies
    ) -> None:
        self.app = app
        self.proxies = proxies
        self.metrics = metrics
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        identifier = identify(_given(scope))
        header = (b"x-request-id", identifier.encode())
        _context.set({"request_id": identifier})
        scope[ROUTE] = scope["path"] if scope["path"] in self.routes else UNMATCHED
        status = 0
        tls = is_tls(scope, self.proxies)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message["headers"]
                headers.append(header)
                headers += security_headers(own_policy=_has_policy(headers), tls=tls)
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            account(self.metrics, scope["method"], route_of(scope), status, started)


def account(metrics: Metrics, method: str, route: str, status: int, started: float) -> None:
    """One metric and one line for a request that is over."""
    seconds = time.perf_counter() - started
    metrics.request(method, route, status, seconds)
    info(
        "request",
        method=method,
        route=route,
        status=status,
        duration_ms=round(seconds * 1000, 2),
    )


def is_tls(scope: Scope, proxies: TrustedProxies) -> bool:
    """Whether the visitor came over TLS, as far as we see or a proxy that we believe says."""
    forwarded = header_values(scope, b"x-forwarded-proto") if proxies else ()
    peer = scope["client"][0] if scope.get("client") else ""
    return comes_over_tls(scope["scheme"], peer, forwarded, proxies)


def comes_over_tls(
    scheme: str | None, peer: str, forwarded: Sequence[str], proxies: TrustedProxies
) -> bool:
    if scheme == "https" or not proxies:
        return scheme == "https"
    return list(forwarded) == ["https"] and proxies.trust(peer)


def _has_policy(headers: list[tuple[bytes, bytes]]) -> bool:
    for name, _ in headers:  # noqa: SIM110  # a generator costs more than all it looks at
        if name == b"content-security-policy":
            return True
    return False


def _given(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return bytes(value)
    return None


def identify(given: bytes | None) -> str:
    """The request's id: the client's own if it can be printed anywhere, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode()
    return str(uuid_utils.uuid7())


def route_of(scope: Scope) -> str:
    """The route's template: a fixed set of values, whatever paths strangers make up."""
    route = scope.get("route")
    return str(route.path if route is not None else scope[ROUTE])
