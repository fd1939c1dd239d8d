"""Which websites' scripts may read our answers: those of active tenants, each only its own."""

from collections.abc import Callable, Sequence

from hlas import errors, log
from hlas.http.asgi import (
    Application,
    Headers,
    Message,
    Receive,
    Scope,
    Send,
    header_values,
    respond,
)
from hlas.visitors.origins import Origin
from hlas.visitors.sessions import Origins, bearer
from hlas.visitors.tokens import Session, Tokens

# An administrator's key must never be usable from a page of somebody else's, and what operators
# read is no page's business.
CLOSED = ("/admin", "/console", "/metrics", "/health", "/ready", "/docs", "/openapi.json")

_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST"),
    (
        b"access-control-allow-headers",
        b"Authorization, Content-Type, Idempotency-Key, X-Request-Id",
    ),
    (b"access-control-max-age", b"7200"),
]
_EXPOSED = (
    b"access-control-expose-headers",
    b"Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, X-Request-Id",
)
_VARY = (b"vary", b"Origin")
# What is answered before a limit is consumed, or because one is used up, may not cost a query, and
# a database that is away is not waited for twice: what is remembered must do.
_UNASKED = frozenset({404, 405, 413, 415, 429, 503})


class Readers:
    """Who may read the answer to a request."""

    def __init__(self, origins: Callable[[], Origins], tokens: Tokens) -> None:
        self._origins = origins
        self._tokens = tokens

    async def may_read(self, scope: Scope, values: list[bytes], status: int) -> bool:
        known = self._known(scope, values)
        if known is None and status not in _UNASKED:
            return await self.is_listed(values)
        return bool(known) or (known is None and self._is_remembered(values))

    def headers(self, scope: Scope) -> Headers:
        origin = self.at_hand(_origins_of(scope), header_values(scope, b"authorization"))
        return readable(origin)

    def at_hand(self, values: Sequence[bytes], authorization: Sequence[str]) -> bytes | None:
        """Whose scripts may read a refusal that must not cost any SQL: as known without asking."""
        if len(values) != 1:
            return None
        session = self._claimed(authorization)
        allowed = _is_of(session, values) if session else self._is_remembered(values)
        return values[0] if allowed else None

    async def is_listed(self, values: list[bytes]) -> bool:
        """On the allowlist of some active tenant."""
        origin = _parse(values)
        try:
            host = await self._origins().host(origin) if origin else None
        except errors.Unavailable:
            return False
        return host is not None and host.is_active

    def _known(self, scope: Scope, values: list[bytes]) -> bool | None:
        """Without asking anybody: yes, no, or None where there is no token to tell."""
        if _is_closed(scope) or _is_public(scope):
            return False
        authorization = header_values(scope, b"authorization")
        session = scope["state"].get("session") or self._claimed(authorization)
        return None if session is None else _is_of(session, values)

    def _claimed(self, authorization: Sequence[str]) -> Session | None:
        """The session of a request that was refused before its token was looked at."""
        try:
            return self._tokens.verify(bearer(authorization))
        except errors.AuthenticationError:
            return None

    def _is_remembered(self, values: Sequence[bytes]) -> bool:
        origin = _parse(values)
        host = self._origins().remembered(origin) if origin else None
        return host is not None and host.is_active


def readable(origin: bytes | None) -> Headers:
    """The headers with which a script of this origin may read an answer; None: nobody's may."""
    if origin is None:
        return (_VARY,)
    return (_VARY, (b"access-control-allow-origin", origin), _EXPOSED)


class CorsMiddleware:
    def __init__(self, app: Application, readers: Readers) -> None:
        self.app = app
        self.readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        values = _origins_of(scope)
        if scope["method"] == "OPTIONS" and values and _is_preflight(scope):
            await self._preflight(scope, values, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                headers.append(_VARY)
                if values and await self.readers.may_read(scope, values, message["status"]):
                    headers += ((b"access-control-allow-origin", values[0]), _EXPOSED)
            await send(message)

        await self.app(scope, receive, send_with_cors)

    async def _preflight(self, scope: Scope, values: list[bytes], send: Send) -> None:
        if not _is_closed(scope) and await self.readers.is_listed(values):
            allowed = (b"access-control-allow-origin", values[0])
            await respond(send, 204, [allowed, *_PREFLIGHT, _VARY])
            return
        # A browser shows nobody why; the log does, in our own spelling and not as it was sent.
        origin = _parse(values)
        log.warning("origin_denied", **({"origin": str(origin)} if origin else {}))
        status, headers, body = errors.render(errors.DomainNotAllowed(), log.request_id())
        await respond(send, status, [*headers, _VARY], body)


def _is_of(session: Session, values: Sequence[bytes]) -> bool:
    return len(values) == 1 and values[0].decode("latin-1").lower() == session.origin


def _origins_of(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"origin"]


def _parse(values: Sequence[bytes]) -> Origin | None:
    return Origin.parse(values[0].decode("latin-1")) if len(values) == 1 else None


def _is_preflight(scope: Scope) -> bool:
    return any(name == b"access-control-request-method" for name, _ in scope["headers"])


def _is_closed(scope: Scope) -> bool:
    return bool(scope["path"].startswith(CLOSED))


def _is_public(scope: Scope) -> bool:
    """The script itself says that everybody may read it."""
    return bool(scope["path"].endswith(".js"))
