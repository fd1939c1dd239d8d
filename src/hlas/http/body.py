"""Request bodies: capped before they are read and while they are read, plain JSON only."""

from hlas.errors import PayloadTooLarge, RequestTimeout, UnsupportedMediaType
from hlas.http.asgi import Application, Message, Receive, Scope, Send

# Pages of ours send forms, in which one byte may take three.
FORMS = "/console"
FORM = "application/x-www-form-urlencoded"


class BodyMiddleware:
    """Refuses what is too large by its Content-Length, or once the counted stream passes it."""

    def __init__(self, app: Application, largest: int) -> None:
        self.app = app
        self.largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD", "OPTIONS"}:
            await self.app(scope, receive, send)
            return
        has_form = scope["path"].startswith(FORMS)
        largest, read = self.largest * 3 if has_form else self.largest, 0
        _check_headers(scope, largest, FORM if has_form else "application/json")

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            if message["type"] == "http.request":
                read += len(message.get("body", b""))
                if read > largest:
                    raise PayloadTooLarge
            return message

        await self.app(scope, counted, send)


def _check_headers(scope: Scope, largest: int, media_type: str) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > largest:
            raise PayloadTooLarge
        if name == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise UnsupportedMediaType
        if name == b"content-type" and not _is_utf8(value, media_type):
            raise UnsupportedMediaType


def _is_utf8(value: bytes, media_type: str) -> bool:
    kind, _, parameters = value.decode("latin-1").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    return kind.strip() == media_type and charset in {"", "charset=utf-8"}


async def read(receive: Receive) -> bytes:
    """The whole body; a client that went away or was too slow gets no further."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestTimeout
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
