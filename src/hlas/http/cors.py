"""Which websites' scripts may read our answers: those of active tenants, each only its own."""

import asyncio
from collections.abc import Callable

from hlas import errors, log
from hlas.http.request import Headers, Request
from hlas.visitors.origins import Origin
from hlas.visitors.sessions import Origins, bearer
from hlas.visitors.tokens import Session, Tokens

# For operators alone: a page of somebody else's must never read these.
CLOSED = ("/admin", "/console", "/metrics", "/health", "/ready", "/docs", "/openapi.json")

PREFLIGHT: Headers = (
    (b"access-control-allow-methods", b"GET, POST, PUT"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Request-Id",
    ),
    (b"access-control-max-age", b"7200"),
)
_EXPOSED = (
    b"access-control-expose-headers",
    b"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, X-Request-Id",
)
_VARY = (b"vary", b"Origin")
# What is answered before a limit is consumed, or because one is used up, may not cost a query, and
# a database that is away is not waited for twice: what is remembered must do.
_UNASKED = frozenset({404, 405, 413, 415, 429, 503})


def readable(origin: bytes | None) -> Headers:
    """The headers with which a script of this origin may read an answer; None: nobody's may."""
    if origin is None:
        return (_VARY,)
    return (_VARY, (b"access-control-allow-origin", origin), _EXPOSED)


def is_preflight(request: Request) -> bool:
    return (
        request.method == "OPTIONS"
        and request.has(b"origin")
        and request.has(b"access-control-request-method")
    )


class Readers:
    """Who may read the answer to a request."""

    def __init__(self, origins: Callable[[], Origins], tokens: Tokens) -> None:
        self._origins = origins
        self._tokens = tokens

    async def find(self, request: Request, status: int) -> bytes | None:
        """The origin whose scripts may read the answer; None: nobody's."""
        values = request.raw(b"origin")
        if len(values) != 1 or request.path.startswith(CLOSED) or request.path.endswith(".js"):
            # Scripts say themselves that everybody may read them.
            return None
        session = request.session or self._claimed(request)
        if session is not None:
            return values[0] if values[0].decode("latin-1").lower() == session.origin else None
        asks = status not in _UNASKED
        return values[0] if await self._is_listed(values[0], asks=asks) else None

    async def require_listed(self, request: Request) -> None:
        """A preflight is answered to the websites of active tenants."""
        values = request.raw(b"origin")
        may_ask = len(values) == 1 and not request.path.startswith(CLOSED)
        if may_ask and await self._is_listed(values[0], asks=True):
            return
        # A browser shows nobody why; the log does, spelled our way and not as it was sent.
        origin = Origin.parse(values[0].decode("latin-1")) if len(values) == 1 else None
        log.warning("origin_denied", **({"origin": str(origin)} if origin else {}))
        raise errors.DomainNotAllowed

    async def _is_listed(self, value: bytes, *, asks: bool) -> bool:
        """On the allowlist of some active tenant; without asking, as far as it is remembered."""
        origin = Origin.parse(value.decode("latin-1"))
        if origin is None:
            return False
        origins = self._origins()
        try:
            # In a task of its own: a line may run outside of any, and the database needs one.
            asking = asyncio.ensure_future(origins.host(origin)) if asks else None
            host = await asking if asking else origins.recall(origin)
        except errors.Unavailable:
            return False
        return host is not None and host.is_active

    def _claimed(self, request: Request) -> Session | None:
        """The session of a request that was refused before its token was looked at."""
        try:
            return self._tokens.verify(bearer(request.values(b"authorization")))
        except errors.AuthenticationError:
            return None
