"""Export a visitor's or a tenant's conversations as JSON Lines."""

import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Self
from uuid import UUID

import orjson

from hlas.conversations.contacts import Contact
from hlas.conversations.conversations import Status
from hlas.conversations.messages import Role
from hlas.conversations.ratings import Rating
from hlas.privacy.subjects import Count, Progress, Subject, rest
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

PAGE = 500

Rename = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class ExportedConversation:
    type: Literal["conversation"]
    id: UUID
    status: Status
    visitor_id: str | None
    is_verified: bool
    origin: str
    metadata: dict[str, object]
    created_at: datetime
    last_message_at: datetime | None
    person_wanted_at: datetime | None
    contact: Contact

    @classmethod
    def from_row(cls, row: Row, rename: Rename, *, anonymous: bool) -> Self:
        return cls(
            type="conversation",
            id=UUID(str(row["id"])),
            status=row["status"],
            visitor_id=rename(row["visitor_id"]) if row["visitor_id"] else None,
            is_verified=row["is_verified"],
            origin=row["origin"],
            metadata={} if anonymous else row["meta"],
            created_at=row["created_at"],
            last_message_at=row["last_message_at"],
            person_wanted_at=row["person_wanted_at"],
            contact=Contact() if anonymous else Contact.from_json(row["contact"]),
        )


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    type: Literal["message"]
    conversation_id: UUID
    id: UUID
    seq: int
    role: Role
    content: str
    metadata: dict[str, object]
    created_at: datetime
    rating: Rating | None

    @classmethod
    def from_row(cls, row: Row, *, anonymous: bool) -> Self:
        rating = Rating.from_row(row)
        return cls(
            type="message",
            conversation_id=UUID(str(row["conversation_id"])),
            id=UUID(str(row["id"])),
            seq=row["seq"],
            role=row["role"],
            content=row["content"],
            metadata={} if anonymous and row["role"] == "user" else row["meta"],
            created_at=row["created_at"],
            # Visitors sign what they write.
            rating=replace(rating, comment="") if rating and anonymous else rating,
        )


async def export(
    operators: Database,
    subject: Subject,
    *,
    anonymous: bool = False,
    on_progress: Progress = lambda _: None,
    change: Change = COMMAND_LINE,
) -> AsyncIterator[bytes]:
    """Yield one line for each conversation, followed by its messages; one page is in memory.

    With `anonymous`, visitors' ids become pseudonyms that are valid in this export only.
    """
    rename = _make_pseudonyms() if anonymous else _keep
    done = Count()
    async for group in _read_conversations(operators, subject):
        messages = _read_messages(operators, subject.tenant_id, [row["id"] for row in group])
        message = await anext(messages, None)
        for conversation in group:
            yield _line(ExportedConversation.from_row(conversation, rename, anonymous=anonymous))
            done.add(1, 0)
            while message is not None and message["conversation_id"] == conversation["id"]:
                yield _line(ExportedMessage.from_row(message, anonymous=anonymous))
                done.add(0, 1)
                on_progress(1)
                message = await anext(messages, None)
    async with operators.transaction() as connection:
        target, after = subject.target, done.to_dict()
        await record(connection, change, subject.tenant_id, "privacy.export", target, after=after)


async def _read_conversations(operators: Database, subject: Subject) -> AsyncIterator[list[Row]]:
    """Yield groups whose messages fit into a page, or a single conversation with more."""
    after = None
    while True:
        page = await _read_page(
            operators,
            queries.export_conversations,
            subject.tenant_id,
            subject.visitor_id,
            after,
            limit=PAGE,
        )
        group: list[Row] = []
        for row in page:
            if group and sum(one["last_seq"] for one in group) + row["last_seq"] > PAGE:
                yield group
                group = []
            group.append(row)
        if group:
            yield group
        if len(page) < PAGE:
            return
        after = page[-1]["id"]


async def _read_messages(
    operators: Database, tenant_id: UUID, conversations: list[UUID]
) -> AsyncIterator[Row]:
    """Yield messages by conversation and seq.

    Those of a group come in one query without a limit: conversations may have grown meanwhile.
    """
    after = 0
    limit = PAGE if len(conversations) == 1 else None
    while True:
        page = await _read_page(
            operators, queries.export_messages, tenant_id, conversations, after, limit=limit
        )
        for row in page:
            yield row
        if limit is None or len(page) < limit:
            return
        after = page[-1]["seq"]


async def _read_page(
    operators: Database, query: str, *arguments: object, limit: int | None
) -> list[Row]:
    started = time.monotonic()
    rows = await operators.all(query, *arguments, limit)
    await rest(started)
    return rows


def _keep(visitor_id: str) -> str:
    return visitor_id


def _make_pseudonyms() -> Rename:
    # The key is discarded with the export: without it nobody can find an id by trying them all.
    key = secrets.token_bytes(32)
    return lambda visitor_id: hmac.new(key, visitor_id.encode(), hashlib.sha256).hexdigest()[:24]


def _line(exported: ExportedConversation | ExportedMessage) -> bytes:
    return orjson.dumps(exported, option=orjson.OPT_APPEND_NEWLINE)
