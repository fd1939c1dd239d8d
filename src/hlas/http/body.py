"""Request bodies: capped before they are read and while they are read, plain JSON only."""

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from hlas.errors import ImportBusy, PayloadTooLarge, RequestTimeout, UnsupportedMediaType
from hlas.http.request import Receive, Request

# Pages of ours send forms, in which one byte may take three.
FORMS = "/console"
FORM_FACTOR = 3
FORM = "application/x-www-form-urlencoded"
FILES = "multipart/form-data"
BODILESS = frozenset({"GET", "HEAD", "OPTIONS"})
# Documents to import, by administrators: in JSON a byte of a file takes 1.4.
UPLOADS = re.compile(r"/(?:admin|console)/tenants/[^/]+/knowledge/(?:preview|import)")
LARGEST_FILE = 10 * 2**20
LARGEST_UPLOAD = 15 * 2**20
# In a worker: each may take a minute to arrive, and as much memory as it is large.
MOST_UPLOADS = 8


def check(request: Request, largest: int) -> None:
    """Refuse by its headers a body that is too large or not plain UTF-8."""
    if request.method in BODILESS:
        return
    has_form = request.path.startswith(FORMS)
    most = _find_largest(request, largest)
    for value in request.raw(b"content-length"):
        # Plain digits, few of them: the server refuses any other length.
        if int(value) > most:
            raise PayloadTooLarge
    for value in request.raw(b"content-encoding"):
        if value.strip().lower() not in {b"", b"identity"}:
            raise UnsupportedMediaType
    for value in request.raw(b"content-type"):
        if has_form and has_files(request):
            continue
        if value != b"application/json" or has_form:
            _require_utf8(value, FORM if has_form else "application/json")


def has_files(request: Request) -> bool:
    """Whether it is a form with files, at an address that takes them."""
    types = request.values(b"content-type")
    return (
        len(types) == 1
        and types[0].partition(";")[0].strip().lower() == FILES
        and UPLOADS.fullmatch(request.path) is not None
    )


class Uploads:
    """The uploads that a worker is reading: one of an administrator, few in all."""

    def __init__(self) -> None:
        self._administrators: set[str] = set()

    @contextmanager
    def admit(self, request: Request, administrator_id: str) -> Iterator[None]:
        """Keep a place while a body is read; only uploads need one."""
        if not UPLOADS.fullmatch(request.path):
            yield
            return
        if administrator_id in self._administrators or len(self._administrators) >= MOST_UPLOADS:
            raise ImportBusy
        self._administrators.add(administrator_id)
        try:
            yield
        finally:
            self._administrators.discard(administrator_id)


def _find_largest(request: Request, largest: int) -> int:
    if UPLOADS.fullmatch(request.path):
        return LARGEST_UPLOAD
    return largest * FORM_FACTOR if request.path.startswith(FORMS) else largest


def _require_utf8(value: bytes, media_type: str) -> None:
    kind, _, parameters = value.decode("latin-1").lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "")
    if kind.strip() != media_type or charset not in {"", "charset=utf-8"}:
        raise UnsupportedMediaType


def reader(request: Request, receive: Receive, largest: int) -> Callable[[], Awaitable[bytes]]:
    """What reads a whole body from ASGI, and no more than it may have."""
    most = _find_largest(request, largest)

    async def read() -> bytes:
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RequestTimeout
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > most:
                raise PayloadTooLarge
            if not message.get("more_body", False):
                return b"".join(pieces)

    return read


def loss_waiter(receive: Receive) -> Callable[[], Awaitable[None]]:
    """What waits until ASGI says that the client has gone."""

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return wait
