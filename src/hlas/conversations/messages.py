"""Visitors' messages: retry-safe create, history, and the deletion of expired keys."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import orjson
import uuid_utils
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from hlas import errors
from hlas.payloads import Metadata, invalid, loads
from hlas.store.db import Database, Queries
from hlas.store.drafts import Draft, Refusal, Written
from hlas.store.writer import Writer
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

Role = Literal["user", "assistant", "operator", "system"]

REAP_ROWS = 500
# The size of a history page is bounded, because a client that does not read holds it in memory.
PAGE_BYTES = 1024 * 1024

REFUSALS: Final[dict[Refusal, type[errors.HlasError]]] = {
    Refusal.CONVERSATION_NOT_FOUND: errors.ConversationNotFound,
    Refusal.CONVERSATION_CLOSED: errors.ConversationClosed,
    Refusal.TENANT_INACTIVE: errors.TenantInactive,
    Refusal.SESSION_REVOKED: errors.SessionRevoked,
    Refusal.TAKEN_OVER: errors.TakenOver,
    Refusal.RUN_LOST: errors.TakenOver,
    Refusal.KEY_CONFLICT: errors.IdempotencyKeyConflict,
    Refusal.IN_PROGRESS: errors.IdempotencyInProgress,
    Refusal.UNAVAILABLE: errors.Unavailable,
}

_KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)


class NewMessage(BaseModel):
    """A visitor's message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(description="what the visitor says; trimmed, counted in code points")
    metadata: Metadata = Field(
        default_factory=dict, description="anything the page wants to keep with the message"
    )

    # Increment it when the hashed form changes: a stored hash starts with its version.
    HASH_VERSION: ClassVar[int] = 1

    @field_validator("text")
    @classmethod
    def _trim(cls, text: str, info: ValidationInfo) -> str:
        text = text.strip()
        if not text:
            raise PydanticCustomError("invalid_text", "empty")
        if info.context and len(text) > info.context["longest"]:
            raise PydanticCustomError("text_too_long", "too long")
        if "\0" in text:
            raise PydanticCustomError("invalid_character", "NUL")
        return text

    @classmethod
    def parse(cls, body: bytes, longest: int) -> "NewMessage":
        return cls.check(loads(body), longest)

    @classmethod
    def check(cls, content: object, longest: int) -> "NewMessage":
        try:
            return cls.model_validate(content, context={"longest": longest})
        except ValidationError as error:
            kinds = {problem["type"] for problem in error.errors()}
            if kinds == {"invalid_text"}:
                raise errors.InvalidText from None
            if kinds == {"text_too_long"}:
                raise errors.TextTooLong from None
            raise invalid(error) from None

    def request_hash(self) -> bytes:
        """Hash of the payload: keys sorted, defaults left out, so new fields change nothing."""
        payload: dict[str, Any] = {"text": self.text}
        if self.metadata:
            payload["metadata"] = self.metadata
        canonical = orjson.dumps(payload, option=orjson.OPT_SORT_KEYS)
        return bytes([self.HASH_VERSION]) + hashlib.sha256(canonical).digest()


def parse_key(headers: Sequence[str]) -> str | None:
    """The Idempotency-Key of a request: at most one, valid, quoted or not."""
    if not headers:
        return None
    if len(headers) > 1:
        raise errors.InvalidIdempotencyKey
    key = headers[0].strip(" \t")
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _KEY.fullmatch(key):
        raise errors.InvalidIdempotencyKey
    return key


async def create(writer: Writer, session: Session, message: NewMessage, key: str | None) -> Written:
    """Store a visitor's message, or replay what the same key stored before."""
    return await store(writer, make_draft(session, message, key))


async def create_as_operator(
    writer: Writer, tenant_id: str, conversation_id: str, message: NewMessage, key: str | None
) -> Written:
    """Store an operator's message, which takes the conversation over."""
    session = Session(tenant_id, conversation_id, "", generation=0, expires_at=0)
    if key is not None:
        # No visitor's key has a space, so neither can use up or replay a key of the other.
        key = f"operator {hashlib.sha256(key.encode()).hexdigest()}"
    draft = make_draft(session, message, key)._replace(role="operator", generation=None)
    return await store(writer, draft)


async def store(writer: Writer, draft: Draft) -> Written:
    """Write a message of any role, or raise the error of its refusal."""
    outcome = await writer.write(draft)
    if isinstance(outcome, Refusal):
        raise REFUSALS[outcome]
    return outcome


def make_draft(session: Session, message: NewMessage, key: str | None) -> Draft:
    """A visitor's message as rows, with the response that its request will get."""
    message_id = str(uuid_utils.uuid7())
    return Draft(
        tenant_id=session.tenant_id,
        conversation_id=session.conversation_id,
        generation=session.generation,
        message_id=message_id,
        role="user",
        content=message.text,
        meta=orjson.dumps(message.metadata).decode() if message.metadata else "{}",
        response=f'{{"conversation_id":"{session.conversation_id}","message_id":"{message_id}"}}',
        key=key,
        request_hash=message.request_hash() if key is not None else None,
    )


async def read_history(
    database: Database, session: Session, *, limit: int, offset: int, after: int | None
) -> bytes:
    """A page of the session's conversation as JSON, oldest first.

    A page has at most PAGE_BYTES, but at least one message if there is one.
    """
    start = offset if after is None else after
    row = await database.one(
        queries.history, session.tenant_id, session.conversation_id, start, limit, PAGE_BYTES
    )
    row = require_standing(session, row)
    reached = row["last_seq"] or start
    paging = {
        "limit": limit,
        "offset": offset if after is None else None,
        "has_more": row["newest"] > reached,
        "next_after": reached,
    }
    return b'{"conversation_id":"%b","messages":%b,"paging":%b}' % (
        session.conversation_id.encode(),
        (row["messages"] or "[]").encode(),
        orjson.dumps(paging),
    )


async def reap_all_keys(operators: Database, ttl_hours: int, *, pause: float = 0.0) -> int:
    """Delete all expired keys, with a pause after each batch; returns how many."""
    reaped = 0
    while batch := await reap_keys(operators, ttl_hours, REAP_ROWS):
        reaped += batch
        await asyncio.sleep(pause)
    return reaped


async def reap_keys(operators: Database, ttl_hours: int, rows: int = REAP_ROWS) -> int:
    """Delete one batch of expired keys; 0 when none is left or another worker is deleting."""
    status = await operators.execute(queries.reap_keys, ttl_hours, rows)
    return int(status.rpartition(" ")[2])
