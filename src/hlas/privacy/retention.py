"""Deletes conversations that are older than their tenant's retention."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID

import asyncpg

from hlas import log
from hlas.privacy import erasure
from hlas.privacy.subjects import Count, Subject
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import Change

queries = Queries.beside(__file__)

RETENTION = Change(actor="retention")


@dataclass(frozen=True, slots=True)
class Retention:
    """How many days a tenant keeps conversations."""

    tenant_id: UUID
    slug: str
    days: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["id"], row["slug"], row["retention_days"])


async def run(operators: Database) -> dict[str, Count]:
    """Delete old conversations of every tenant with a retention; returns counts by slug.

    Does nothing while another worker does it.
    """
    removed: dict[str, Count] = {}
    for row in await operators.all(queries.tenants_with_retention):
        retention = Retention.from_row(row)
        done = await _retire(operators, retention)
        if done:
            removed[retention.slug] = done
    if removed:
        log.info(
            "retention_removed",
            tenants=len(removed),
            conversations=sum(done.conversations for done in removed.values()),
            messages=sum(done.messages for done in removed.values()),
        )
    return removed


async def _retire(operators: Database, retention: Retention) -> Count:
    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        rows = await connection.fetch(
            queries.next_to_retire,
            retention.tenant_id,
            retention.days,
            erasure.BATCH_CONVERSATIONS,
        )
        await erasure.remove_some(connection, rows, done)
        return bool(rows)

    whose = Subject(retention.tenant_id)
    return await erasure.in_batches(operators, batch, RETENTION, whose, "retention.remove")
