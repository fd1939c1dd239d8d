"""Visitors' sessions: from an origin to its tenant, a conversation and a short-lived token."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
# How often a conversation is looked for that another device of the visitor's is just opening.
RESUME_TRIES = 3


class NewSession(BaseModel):
    """What a page may tell about its visitor when it opens a session."""

    model_config = ConfigDict(extra="forbid", strict=True)

    visitor_id: str | None = Field(
        default=None, max_length=128, description="the page's own id of the visitor, not verified"
    )
    identity: str | None = Field(
        default=None, description="a JWT in which the tenant's server says who the visitor is"
    )
    metadata: Metadata = Field(
        default_factory=dict, description="anything the page wants to keep with the conversation"
    )

    @field_validator("visitor_id")
    @classmethod
    def _printable(cls, visitor_id: str | None) -> str | None:
        if visitor_id is not None and not visitor_id.isprintable():
            raise PydanticCustomError("invalid_character", "control character")
        return visitor_id or None


@dataclass(frozen=True, slots=True)
class Host:
    """The tenant an origin belongs to."""

    tenant_id: str
    is_active: bool


def request_origin(origins: Sequence[str], referers: Sequence[str]) -> Origin:
    """The one valid Origin of a request; Referer's only when there is no Origin at all."""
    if not origins:
        found = Origin.of_url(referers[0]) if len(referers) == 1 else None
    else:
        found = Origin.parse(origins[0]) if len(origins) == 1 else None
    if found is None:
        raise errors.InvalidOrigin
    return found


class Origins:
    """Which tenant an origin belongs to, remembered for a moment and while the database is away."""

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
        """The tenant of an origin that may be used now."""
        found = await self.host(origin)
        if found is None:
            raise errors.DomainNotAllowed
        if not found.is_active:
            raise errors.TenantInactive
        return found

    def remembered(self, origin: Origin) -> Host | None:
        """What was last known, however long ago; asks nobody."""
        known = self._known.get(origin)
        return known[1] if known else None

    def _remember(self, origin: Origin, until: float, host: Host | None) -> None:
        self._known.pop(origin, None)
        if len(self._known) >= ORIGIN_CACHE_ENTRIES:
            del self._known[next(iter(self._known))]
        self._known[origin] = (until, host)


async def open_session(
    database: Database, tokens: Tokens, origin: Origin, new: NewSession
) -> tuple[dict[str, Any], Session]:
    """A conversation at the origin's tenant, and the token to it.

    It is a new one, unless the tenant vouches for a visitor who has one open.
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
    return _grant(tokens, row["tenant_id"], conversation_id, str(origin), row)


@dataclass(frozen=True, slots=True)
class _Signer:
    """A tenant as far as its visitors' identities go."""

    tenant_id: str
    slug: str
    mode: str
    # As old as the keys: a sign-out after the removal of a key ends what it let in last, too.
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
) -> tuple[dict[str, Any], Session]:
    """The open conversation of a visitor the tenant vouches for, wherever it was begun."""
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
            granted = {"token_generation": signer.generation, "ui_config": row["ui_config"]}
            until = int(time.time()) + identities.LONGEST_LIFE_SECONDS
            conversation_id = row["conversation_id"]
            return _grant(tokens, signer.tenant_id, conversation_id, str(origin), granted, until)
    raise errors.Unavailable


async def refresh(
    database: Database, tokens: Tokens, session: Session
) -> tuple[dict[str, Any], Session]:
    """A new token to the same conversation, if it still stands and its website is allowed."""
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
    return _grant(
        tokens,
        session.tenant_id,
        session.conversation_id,
        session.origin,
        row,
        session.vouched_until,
        session.opened_at,
    )


async def check(database: Database, session: Session) -> Row:
    """Ask the database whether the session still stands, where no other statement will."""
    row = await database.one(queries.check_session, session.tenant_id, session.conversation_id)
    return require_standing(session, row)


def require_standing(session: Session, row: Row | None) -> Row:
    """A token is a claim; the row says whether its tenant and conversation still stand."""
    if row is None or row["is_active"] is None or row["status"] is None:
        raise errors.ConversationNotFound
    if not row["is_active"]:
        raise errors.TenantInactive
    if row["token_generation"] != session.generation:
        raise errors.SessionRevoked
    return row


def _grant(
    tokens: Tokens,
    tenant_id: str,
    conversation_id: str,
    origin: str,
    row: Mapping[str, Any],
    vouched_until: int = 0,
    opened_at: int | None = None,
) -> tuple[dict[str, Any], Session]:
    generation = row["token_generation"]
    token = tokens.issue(tenant_id, conversation_id, origin, generation, vouched_until, opened_at)
    answer = {
        "conversation_id": conversation_id,
        "token": token,
        "expires_in": tokens.ttl_seconds,
        "ui_config": row["ui_config"],
    }
    return answer, tokens.verify(token)


def bearer(headers: Sequence[str]) -> str:
    """The token of an Authorization header."""
    if not headers:
        raise errors.MissingAuthorization
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token or " " in token:
        raise errors.InvalidAuthorization
    return token


def require_origin(session: Session, origins: Sequence[str]) -> None:
    """A token works on the origin it was issued to; a request without Origin is no browser's."""
    if origins and tuple(origins) != (session.origin,):
        found = Origin.parse(origins[0]) if len(origins) == 1 else None
        if found is None or str(found) != session.origin:
            raise errors.OriginMismatch
