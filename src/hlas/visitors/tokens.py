"""Widget tokens: short-lived, signed, bound to one tenant, conversation and origin."""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol
from uuid import UUID

import jwt
import orjson

from hlas.errors import InvalidClaims, InvalidToken, SessionExpired, TokenExpired

ALGORITHM = "HS256"
AUDIENCE = "hlas-widget"
LEEWAY_SECONDS = 30
LONGEST = 2048
CACHED = 20_000

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Session:
    """The claims of a verified token. Later statements check them against the database."""

    tenant_id: str
    conversation_id: str
    origin: str
    generation: int
    expires_at: int
    # When a verified visitor has to present the identity again; 0 for unverified visitors.
    vouched_until: int = 0
    # When the session was opened; unchanged by refreshes.
    opened_at: int = 0


def key_id(secret: str) -> str:
    return hashlib.sha256(b"hlas-kid:" + secret.encode()).hexdigest()[:12]


class KeySource(Protocol):
    """Signing secrets, newest first; they may change while the service runs."""

    def secrets(self) -> tuple[str, ...]: ...


class Tokens:
    def __init__(
        self, keys: KeySource, ttl_seconds: int, clock: Callable[[], float] = time.time
    ) -> None:
        self.ttl_seconds = ttl_seconds
        self._keys = keys
        self._clock = clock
        self._secrets: tuple[str, ...] = ()
        self._by_id: dict[str, str] = {}
        # Cache of verified tokens; the oldest are evicted first.
        self._verified: dict[str, Session] = {}

    def issue(
        self,
        tenant_id: str,
        conversation_id: str,
        origin: str,
        generation: int,
        vouched_until: int = 0,
        opened_at: int | None = None,
    ) -> str:
        self._load_keys()
        now = int(self._clock())
        opened_at = now if opened_at is None else opened_at
        expires_at = now + self.ttl_seconds
        claims: dict[str, object] = {
            "aud": AUDIENCE,
            "tid": tenant_id,
            "cid": conversation_id,
            "org": origin,
            "gen": generation,
            "opn": opened_at,
            "iat": now,
            "exp": expires_at,
        }
        if vouched_until:
            claims["vut"] = vouched_until
        token = _sign(claims, self._secrets[0])
        # The next request will have this token, so cache it verified.
        session = Session(
            tenant_id, conversation_id, origin, generation, expires_at, vouched_until, opened_at
        )
        self._remember(token, session)
        return token

    def verify(self, token: str) -> Session:
        self._load_keys()
        session = self._verified.get(token)
        if session is None:
            session = self._remember(token, self._decode(token))
        if session.expires_at + LEEWAY_SECONDS <= self._clock():
            self._verified.pop(token, None)
            raise TokenExpired
        return session

    def verify_for_refresh(self, token: str, window_seconds: int, longest_seconds: int) -> Session:
        """Accept a token that expired within the window, unless its session is too old."""
        self._load_keys()
        session = self._decode(token)
        now = self._clock()
        if session.expires_at + max(window_seconds, LEEWAY_SECONDS) <= now:
            raise SessionExpired
        if session.opened_at + longest_seconds <= now:
            raise SessionExpired
        if 0 < session.vouched_until <= now:
            raise SessionExpired
        return session

    def _remember(self, token: str, session: Session) -> Session:
        if len(self._verified) >= CACHED:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = session
        return session

    def secrets(self) -> tuple[str, ...]:
        """The signing secrets, newest first, for verifying other things that we signed."""
        return self._keys.secrets()

    def _load_keys(self) -> None:
        secrets = self._keys.secrets()
        if secrets is not self._secrets:
            self._secrets = secrets
            self._by_id = {key_id(secret): secret for secret in secrets}
            self._verified.clear()

    def _decode(self, token: str) -> Session:
        if len(token) > LONGEST or not _FORM.fullmatch(token):
            raise InvalidToken
        try:
            header = jwt.get_unverified_header(token)
            if header.get("typ") != "JWT":
                raise InvalidToken
            claims = jwt.decode(
                token,
                self._by_id[header["kid"]],
                algorithms=[ALGORITHM],
                options={"verify_exp": False, "verify_aud": False, "verify_iat": False},
            )
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            raise InvalidToken from None
        _require_canonical(token)
        return _read_claims(claims)


def _sign(claims: Mapping[str, object], secret: str) -> str:
    """A JWT as PyJWT makes it, at a tenth of the cost."""
    signed = b"%b.%b" % (_header(secret), _base64(orjson.dumps(claims)))
    signature = hmac.digest(secret.encode(), signed, hashlib.sha256)
    return (signed + b"." + _base64(signature)).decode()


@lru_cache(maxsize=16)
def _header(secret: str) -> bytes:
    header = {"alg": ALGORITHM, "kid": key_id(secret), "typ": "JWT"}
    return _base64(orjson.dumps(header))


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _require_canonical(token: str) -> None:
    """Base64 has several encodings of the same bytes; accept only the canonical one."""
    for part in token.split("."):
        padded = part + "=" * (-len(part) % 4)
        if base64.urlsafe_b64encode(base64.urlsafe_b64decode(padded)).decode() != padded:
            raise InvalidToken


def _read_claims(claims: Mapping[str, object]) -> Session:
    """Build a session from claims of exactly the types that we issue."""
    if claims.get("aud") != AUDIENCE:
        raise InvalidClaims
    issued_at = _require_integer(claims.get("iat"))
    return Session(
        tenant_id=_require_uuid(claims.get("tid")),
        conversation_id=_require_uuid(claims.get("cid")),
        origin=_require_text(claims.get("org")),
        generation=_require_integer(claims.get("gen")),
        expires_at=_require_integer(claims.get("exp")),
        vouched_until=_require_integer(claims.get("vut", 0)),
        # Tokens of earlier versions have no `opn`: their session counts from their own issue.
        opened_at=_require_integer(claims.get("opn", issued_at)),
    )


def _require_integer(claim: object) -> int:
    # The exact type: in Python True is an int.
    if type(claim) is not int:
        raise InvalidClaims
    return claim


def _require_text(claim: object) -> str:
    if not isinstance(claim, str):
        raise InvalidClaims
    return claim


def _require_uuid(claim: object) -> str:
    text = _require_text(claim)
    try:
        is_canonical = str(UUID(text)) == text
    except ValueError:
        is_canonical = False
    if not is_canonical:
        raise InvalidClaims
    return text
