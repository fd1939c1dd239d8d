"""The names ASGI gives things, for middleware that needs no framework."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

_INDEX = "hlas.http.headers"

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def header_values(scope: Scope, name: bytes) -> Sequence[str]:
    """Every value of a header, as it came; a request is asked for several, so it is sorted once."""
    index: dict[bytes, list[str]] | None = scope.get(_INDEX)
    if index is None:
        index = scope[_INDEX] = {}
        for key, value in scope["headers"]:
            index.setdefault(key, []).append(value.decode("latin-1"))
    return index.get(name, ())


async def respond(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
