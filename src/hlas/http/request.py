"""One request, made once from its headers, whoever drives it to its answer."""

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import uuid_utils

if TYPE_CHECKING:
    from hlas.visitors.tokens import Session

Header: TypeAlias = tuple[bytes, bytes]
Headers: TypeAlias = Sequence[Header]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

# Where a request is going as long as no route has said so.
UNMATCHED = "unmatched"

# More digits are no length, and Python itself refuses to read thousands of them.
_LENGTH = re.compile(rb"[0-9]{1,19}[ \t]*")
_VERSIONS = frozenset({"1.0", "1.1"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Request:
    """What is known of a request; the steps of its line add to it."""

    __slots__ = (
        "_by_name",
        "_is_repeated",
        "_route",
        "address",
        "context",
        "headers",
        "id",
        "method",
        "path",
        "peer",
        "query",
        "read",
        "scheme",
        "scope",
        "session",
        "started",
        "wait_lost",
    )

    # Set by whoever drives the request: the whole body.
    read: Callable[[], Awaitable[bytes]]
    # The same: returns when the client has gone. To be used after the body was read.
    wait_lost: Callable[[], Awaitable[None]]

    def __init__(
        self, method: str, path: str, query: bytes, headers: Headers, peer: str, scheme: str
    ) -> None:
        self.started = time.perf_counter()
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self._by_name = dict(headers)
        self._is_repeated = len(self._by_name) != len(headers)
        # Empty where there is none, as on a unix socket.
        self.peer = peer
        self.scheme = scheme
        self._route = UNMATCHED
        # Of a request that the framework routes.
        self.scope: Message | None = None
        # Found by the gate, from the peer and what proxies say.
        self.address: str | None = None
        self.session: Session | None = None
        self.id = identify(self.values(b"x-request-id"))
        # On every log line about this request.
        self.context: dict[str, str] = {"request_id": self.id}

    @property
    def route(self) -> str:
        """The route's template: a fixed set of values, whatever paths strangers make up."""
        found = self.scope.get("route") if self.scope is not None else None
        return self._route if found is None else str(found.path)

    @route.setter
    def route(self, template: str) -> None:
        self._route = template

    def raw(self, name: bytes) -> Sequence[bytes]:
        """Every value of a header, as it came."""
        if self._is_repeated:
            return [value for header, value in self.headers if header == name]
        value = self._by_name.get(name)
        return () if value is None else (value,)

    def values(self, name: bytes) -> Sequence[str]:
        """Every value of a header, as text."""
        if self._is_repeated:
            return [value.decode("latin-1") for value in self.raw(name)]
        value = self._by_name.get(name)
        return () if value is None else (value.decode("latin-1"),)

    def has(self, name: bytes) -> bool:
        return name in self._by_name


def identify(given: Sequence[str]) -> str:
    """The request's id: the client's own where it is one that can be printed, else a new one."""
    if given and _REQUEST_ID.fullmatch(given[0]):
        return given[0]
    return str(uuid_utils.uuid7())


def is_ambiguous(target: bytes, request: Request, version: str) -> bool:
    """A proxy before us may have read the target, the host or the body in another way."""
    hosts, codings = request.raw(b"host"), request.raw(b"transfer-encoding")
    # Load balancers check health by HTTP/1.0, which knows no Host.
    is_host_clear = len(hosts) == 1 or (not hosts and version == "1.0")
    if not is_host_clear or version not in _VERSIONS or b"#" in target:
        return True
    if codings and (len(codings) > 1 or codings[0].strip(b" \t").lower() != b"chunked"):
        return True
    return not all(map(_LENGTH.fullmatch, request.raw(b"content-length")))
