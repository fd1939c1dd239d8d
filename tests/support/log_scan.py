"""Edge case 41: visitors' texts and credentials are never logged.

Everything that the tests send is remembered, and every log of the tests is searched for it.
"""

import io
import re
from collections.abc import Iterator
from typing import Any

import httpx
import orjson

from hlas import log

# Shorter words occur in log lines by chance.
SHORTEST = 5

SECRET = "a secret for tests that is long enough"

_TOKEN = re.compile(rb"eyJ[A-Za-z0-9_-]{10,}")
_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]")
# Ids of tenants and conversations may be logged.
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EVENT = re.compile(r"[a-z][a-z_]*")

_said: set[bytes] = set()


def hear(*texts: str) -> None:
    """Remember a text that must not be logged until the next check."""
    _said.update(
        text.encode() for text in texts if len(text) >= SHORTEST and not _ID.fullmatch(text)
    )


async def hear_request(request: httpx.Request) -> None:
    """An event hook for clients: remember what every request sends."""
    for name in ("authorization", "idempotency-key"):
        value = request.headers.get(name, "")
        hear(*value.strip('"').split(" "))
    if request.url.path.endswith("/handler"):
        return  # agent or human: words that the log uses, too
    content = getattr(request, "_content", b"")
    try:
        hear(*_texts(orjson.loads(content)))
    except orjson.JSONDecodeError:
        hear(content.decode("latin-1"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, dict):
        for name, item in value.items():
            # Answer or error: words that the log uses, too.
            if name != "on_failure":
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def check(log: bytes) -> None:
    """Fail if the log contains a token, a secret, a visitor's text or a control character."""
    found = [text for text in (SECRET.encode(), *_said) if text in log]
    assert not found, f"logged: {found[:3]}"
    assert not _TOKEN.search(log), "a token was logged"
    assert not _CONTROL.search(log), "a raw control character was logged"
    for line in log.splitlines():
        if line.startswith(b"{"):
            assert _EVENT.fullmatch(orjson.loads(line)["event"]), line


def forget() -> None:
    _said.clear()


def events(logs: io.BytesIO) -> list[dict[str, Any]]:
    """The log events so far."""
    log.flush()
    return [orjson.loads(line) for line in logs.getvalue().splitlines()]
