"""Visitors' sessions: from an origin to its tenant, a conversation and a short-lived token."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import uuid_utils
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from hlas import errors
from hlas.payloads import Metadata
from hlas.store.db import Database, Queries, Row
from hlas.visitors import identities
from hlas.visitors.origins import Origin
from hlas.visitors.tokens import Session, Tokens

queries = Queries.beside(__file__)

ORIGIN_CACHE_SECONDS = 2.0
ORIGIN_CACHE_ENTRIES = 10_000
# Attempts to find a conversation that another device of the visitor is opening just now.
RESUME_TRIES = 3


class NewSession(BaseModel):
    """What a page can send about its visitor when it opens a session."""

    model_config = ConfigDict(extra="forbid", strict=True)

    visitor_id: str | None = Field(
        default=None, max_length=128, description="the page's own id of the visitor; not verified"
    )
    identity: str | None = Field(
        default=None, description="a JWT in which the tenant's server states who the visitor is"
    )
    metadata: Metadata = Field(default_factory=dict, description="stored with the conversation")

    @field_validator("visitor_id")
    @classmethod
    def _require_printable(cls, visitor_id: str | None) -> str | None:
        if visitor_id is not None and not visitor_id.isprintable():
            raise PydanticCustomError("invalid_character", "control character")
        return visitor_id or None


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    conversation_id: UUID
    token: str
    expires_in: Annotated[int, Field(description="seconds")]
    ui_config: dict[str, object]


@dataclass(frozen=True, slots=True)
class Host:
    """The tenant an origin belongs to."""

    tenant_id: str
    is_active: bool


def request_origin(origins: Sequence[str], referers: Sequence[str]) -> Origin:
    """Return the origin of a request; Referer is used only if there is no Origin."""
    if not origins:
        found = Origin.of_url(referers[0]) if len(referers) == 1 else None
    else:
        found = Origin.parse(origins[0]) if len(origins) == 1 else None
    if found is None:
        raise errors.InvalidOrigin
    return found


class Origins:
    """Finds the tenant of an origin; cached briefly, or as long as the database is unavailable."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[Origin, tuple[float, Host | None]] = {}

    async def host(self, origin: Origin) -> Host | None:
        known = self._known.get(origin)
        now = self._clock()
        if known is not None and known[0] > now:
            return known[1]
        try:
            row = await self._database.one(
                queries.resolve_origin, origin.scheme, origin.hosts, origin.port
            )
        except errors.Unavailable:
            if known is None:
                raise
            return known[1]
        found = Host(row["tenant_id"], row["is_active"]) if row else None
        self._remember(origin, now + ORIGIN_CACHE_SECONDS, found)
        return found

    async def active_host(self, origin: Origin) -> Host:
        """Return the active tenant of an origin, or raise."""
        found = await self.host(origin)
        if found is None:
            raise errors.DomainNotAllowed
        if not found.is_active:
            raise errors.TenantInactive
        return found

    def recall(self, origin: Origin) -> Host | None:
        """Return the last known tenant, however old, without a query."""
        known = self._known.get(origin)
        return known[1] if known else None

    def _remember(self, origin: Origin, until: float, host: Host | None) -> None:
        self._known.pop(origin, None)
        if len(self._known) >= ORIGIN_CACHE_ENTRIES:
            del self._known[next(iter(self._known))]
        self._known[origin] = (until, host)


async def open_session(
    database: Database, tokens: Tokens, origin: Origin, new: NewSession
) -> tuple[SessionAnswer, Session]:
    """Open a session: a conversation of the origin's tenant, and its token.

    A verified visitor gets their open conversation, everyone else a new one.
    """
    if new.identity:
        signer = await _read_signer(database, origin)
        if signer.mode != "off":
            return await _resume(database, tokens, origin, new, signer)
    conversation_id = str(uuid_utils.uuid7())
    row = await database.one(
        queries.open_session,
        origin.scheme,
        origin.hosts,
        origin.port,
        conversation_id,
        new.visitor_id,
        str(origin),
        new.metadata,
    )
    if row is None:
        raise errors.DomainNotAllowed
    if not row["is_active"]:
        raise errors.TenantInactive
    if row["identity_mode"] == "required":
        raise errors.IdentityRequired
    token = tokens.issue(row["tenant_id"], conversation_id, str(origin), row["token_generation"])
    return _grant(tokens, token, row["ui_config"])


@dataclass(frozen=True, slots=True)
class _Signer:
    """What is needed of a tenant to verify its visitors' identities."""

    tenant_id: str
    slug: str
    mode: str
    # Read together with the keys, so that a sign-out after removing a key also ends the sessions
    # that were being opened with it.
    generation: int
    keys: dict[str, identities.Key]


async def _read_signer(database: Database, origin: Origin) -> _Signer:
    rows = await database.all(queries.read_signer, origin.scheme, origin.hosts, origin.port)
    if not rows:
        raise errors.DomainNotAllowed
    first = rows[0]
    if not first["is_active"]:
        raise errors.TenantInactive
    keys = [identities.Key(row["kid"], row["algorithm"], row["material"]) for row in rows]
    known = {key.kid: key for key in keys if key.kid}
    return _Signer(
        tenant_id=first["tenant_id"],
        slug=first["slug"],
        mode=first["identity_mode"],
        generation=first["token_generation"],
        keys=known,
    )


async def _resume(
    database: Database, tokens: Tokens, origin: Origin, new: NewSession, signer: _Signer
) -> tuple[SessionAnswer, Session]:
    """Return the open conversation of a verified visitor, or open one."""
    audiences = (signer.slug, signer.tenant_id)
    visitor_id = identities.verify(new.identity or "", signer.keys, audiences, time.time())
    if new.visitor_id not in {None, visitor_id}:
        raise errors.InvalidIdentity("visitor_id_differs")
    for _ in range(RESUME_TRIES):
        row = await database.one(
            queries.resume_session,
            signer.tenant_id,
            str(uuid_utils.uuid7()),
            visitor_id,
            str(origin),
            new.metadata,
        )
        if row is None or not row["is_active"]:
            raise errors.TenantInactive
        if row["conversation_id"] is not None:
            token = tokens.issue(
                signer.tenant_id,
                row["conversation_id"],
                str(origin),
                signer.generation,
                vouched_until=int(time.time()) + identities.LONGEST_LIFE_SECONDS,
            )
            return _grant(tokens, token, row["ui_config"])
    raise errors.Unavailable


async def refresh(
    database: Database, tokens: Tokens, session: Session
) -> tuple[SessionAnswer, Session]:
    """Issue a new token for the same conversation, if session and origin are still valid."""
    origin = Origin.parse(session.origin)
    if origin is None:
        raise errors.DomainNotAllowed
    row = await database.one(
        queries.check_refresh,
        session.tenant_id,
        session.conversation_id,
        origin.scheme,
        origin.hosts,
        origin.port,
    )
    row = require_standing(session, row)
    if not row["is_allowed"]:
        raise errors.DomainNotAllowed
    if row["status"] != "open":
        raise errors.ConversationClosed
    if row["identity_mode"] == "required" and not row["is_verified"]:
        raise errors.IdentityRequired
    token = tokens.issue(
        session.tenant_id,
        session.conversation_id,
        session.origin,
        row["token_generation"],
        session.vouched_until,
        session.opened_at,
    )
    return _grant(tokens, token, row["ui_config"])


async def check(database: Database, session: Session) -> None:
    """Check in the database that the session is still valid, if no other statement does."""
    row = await database.one(queries.check_session, session.tenant_id, session.conversation_id)
    require_standing(session, row)


def require_standing(session: Session, row: Row | None) -> Row:
    """Raise unless the row says that tenant, conversation and session are still valid."""
    if row is None or row["is_active"] is None or row["status"] is None:
        raise errors.ConversationNotFound
    if not row["is_active"]:
        raise errors.TenantInactive
    if row["token_generation"] != session.generation:
        raise errors.SessionRevoked
    return row


def _grant(
    tokens: Tokens, token: str, ui_config: dict[str, object]
) -> tuple[SessionAnswer, Session]:
    session = tokens.verify(token)
    conversation_id = UUID(session.conversation_id)
    return SessionAnswer(conversation_id, token, tokens.ttl_seconds, ui_config), session


def bearer(headers: Sequence[str]) -> str:
    """Return the token of the Authorization header."""
    if not headers:
        raise errors.MissingAuthorization
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or " " in token:
        raise errors.InvalidAuthorization
    return token


def require_origin(session: Session, origins: Sequence[str]) -> None:
    """Require the origin the token was issued for; a request without Origin is not a browser's."""
    if origins and tuple(origins) != (session.origin,):
        found = Origin.parse(origins[0]) if len(origins) == 1 else None
        if found is None or str(found) != session.origin:
            raise errors.OriginMismatch
