"""The audit: who changed what, before and after, in which request. It is added to, never edited."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import uuid_utils

from hlas.errors import TenantNotFound
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# What concerns the service and none of its tenants.
SERVICE = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes something, and in which request."""

    actor: str
    request_id: str | None = None


COMMAND_LINE = Change(actor="command line")


async def record(
    connection: asyncpg.Connection,
    change: Change,
    tenant_id: UUID,
    action: str,
    target: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """One row of audit, in the transaction of the change it tells of."""
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


async def listed(
    database: Database,
    *,
    slug: str | None = None,
    action: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[dict[str, Any]], UUID | None]:
    """A page of the audit, newest first, and where the next one starts.

    `action` is a whole one, as `tenant.add`, or a noun, as `tenant`.
    """
    tenant_ids = None if slug is None else await _called(database, slug)
    rows = await database.all(queries.list_events, tenant_ids, action, before, limit + 1)
    page = rows[:limit]
    return [_event(row) for row in page], page[-1]["id"] if len(rows) > limit else None


async def _called(database: Database, slug: str) -> list[UUID]:
    rows = await database.all(queries.tenants_called, slug)
    if not rows:
        raise TenantNotFound(f"there is and was no tenant {slug!r}; `hlas tenant list` shows all")
    return [row["id"] for row in rows]


def _event(row: Row) -> dict[str, Any]:
    concerns_tenant = UUID(str(row["tenant_id"])) != SERVICE
    return {
        "id": str(row["id"]),
        "created_at": row["created_at"],
        "actor": row["actor"],
        "action": row["action"],
        "target": row["target"],
        "tenant_id": str(row["tenant_id"]) if concerns_tenant else None,
        "tenant": row["slug"],
        "before": row["before"],
        "after": row["after"],
        "request_id": row["request_id"],
    }
