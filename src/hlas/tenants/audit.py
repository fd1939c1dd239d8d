"""The audit: who changed what, before and after, in which request. Events are never edited."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

import asyncpg
import uuid_utils
from pydantic import Field

from hlas.errors import TenantNotFound
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# The tenant id of events that concern the service as a whole.
SERVICE = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes something, and in which request."""

    actor: str
    request_id: str | None = None


COMMAND_LINE = Change(actor="command line")


@dataclass(frozen=True, slots=True)
class Event:
    id: UUID
    created_at: datetime
    actor: str
    action: str
    target: str
    tenant_id: Annotated[
        UUID | None, Field(description="null: the event concerns the service as a whole")
    ]
    tenant: Annotated[str | None, Field(description="its slug; null once the tenant is removed")]
    before: dict[str, object] | None
    after: dict[str, object] | None
    request_id: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        tenant_id = UUID(str(row["tenant_id"]))
        return cls(
            id=UUID(str(row["id"])),
            created_at=row["created_at"],
            actor=row["actor"],
            action=row["action"],
            target=row["target"],
            tenant_id=None if tenant_id == SERVICE else tenant_id,
            tenant=row["slug"],
            before=row["before"],
            after=row["after"],
            request_id=row["request_id"],
        )


async def record(
    connection: asyncpg.Connection,
    change: Change,
    tenant_id: UUID,
    action: str,
    target: str,
    before: Mapping[str, object] | None = None,
    after: Mapping[str, object] | None = None,
) -> None:
    """Add an event, in the transaction of the change it describes."""
    await connection.execute(
        queries.record_event,
        tenant_id,
        UUID(str(uuid_utils.uuid7())),
        change.actor,
        action,
        target,
        before,
        after,
        change.request_id,
    )


async def list_events(
    database: Database,
    *,
    slug: str | None = None,
    action: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[Event], UUID | None]:
    """A page of the audit, newest first, and the cursor of the next page.

    `action` is complete, like `tenant.add`, or only its noun, like `tenant`.
    """
    tenant_ids = None if slug is None else await _find_tenant_ids(database, slug)
    rows = await database.all(queries.list_events, tenant_ids, action, before, limit + 1)
    page = [Event.from_row(row) for row in rows[:limit]]
    return page, page[-1].id if len(rows) > limit else None


async def _find_tenant_ids(database: Database, slug: str) -> list[UUID]:
    rows = await database.all(queries.tenants_called, slug)
    if not rows:
        raise TenantNotFound(f"there is and was no tenant {slug!r}; `hlas tenant list` shows all")
    return [row["id"] for row in rows]
