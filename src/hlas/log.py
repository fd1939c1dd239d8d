"""The one log: a JSON object a line, each with the id of the request it is about."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from functools import lru_cache, partial
from typing import BinaryIO, Final

import orjson

# What is known of the request under way; every line logged meanwhile carries it.
_context: ContextVar[dict[str, str]] = ContextVar("hlas_request")
_nowhere: Final[dict[str, str]] = {}


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


Line = dict[str, object]
Renderer = Callable[[Line], bytes]

_json: Renderer = partial(orjson.dumps, default=repr)


_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31"}


def _console(line: Line) -> bytes:
    """For people at a terminal."""
    moment, level, event = (str(line.pop(name)) for name in ("time", "level", "event"))
    fields = " ".join(f"{name}=\x1b[36m{_printable(value)}\x1b[0m" for name, value in line.items())
    return (
        f"\x1b[2m{moment[11:19]}\x1b[0m \x1b[{_COLOURS[level]}m{event:<24}\x1b[0m {fields}".encode()
    )


def _printable(value: object) -> str:
    # A terminal obeys escape codes, so nothing unprintable reaches it as it is.
    text = str(value)
    return text if text.isprintable() else repr(text)


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
    logging.basicConfig(handlers=[_Foreign()], level=max(_threshold, logging.WARNING), force=True)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def flush() -> None:
    _sink.flush()


class _Foreign(logging.Handler):
    """Other libraries' records in our shape: where and how bad, and never the values in them."""

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = {"logger": record.name, "detail": _first_line(record)}
        if record.exc_info and record.exc_info[0]:
            fields["error"] = record.exc_info[0].__name__
        report = error if record.levelno >= logging.ERROR else warning
        report("library", **fields)


def _first_line(record: logging.LogRecord) -> str:
    # Further lines hold representations of tasks and exceptions, which may quote a visitor.
    return str(record.msg).partition("\n")[0][:300]


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


def _log(level: str, number: int, event: str, fields: Line) -> None:
    """Two lines are written for each message, and a library for this cost a third of it."""
    if number >= _threshold:
        line: Line = {
            "time": _now(),
            "level": level,
            "event": event,
            **fields,
            **_context.get(_nowhere),
        }
        _sink.write(_render(line))


def debug(event: str, **fields: object) -> None:
    _log("debug", logging.DEBUG, event, fields)


def info(event: str, **fields: object) -> None:
    _log("info", logging.INFO, event, fields)


def warning(event: str, **fields: object) -> None:
    _log("warning", logging.WARNING, event, fields)


def error(event: str, **fields: object) -> None:
    _log("error", logging.ERROR, event, fields)


def bind(**fields: str) -> None:
    """Let every further line of this request carry these."""
    _context.get({}).update(fields)


def enter(fields: dict[str, str]) -> Token[dict[str, str]]:
    """Every line is about this request from now on, until `leave` or the end of the task."""
    return _context.set(fields)


def leave(token: Token[dict[str, str]]) -> None:
    _context.reset(token)


def current() -> Mapping[str, str]:
    """All that is bound to the request under way."""
    return _context.get(_nowhere)


def known(name: str) -> str | None:
    """What is bound under a name to the request under way, if anything is."""
    return _context.get(_nowhere).get(name)


def request_id() -> str:
    return current().get("request_id", "")


def find_place(error: BaseException) -> str:
    """Function and line where an error was raised: unlike its message, they quote nobody."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    return f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"
