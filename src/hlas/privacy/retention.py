"""Deletes conversations that are older than their tenant's retention."""

from uuid import UUID

import asyncpg

from hlas import log
from hlas.privacy import erasure
from hlas.privacy.subjects import Count, Subject
from hlas.store.db import Database, Queries
from hlas.tenants.audit import Change

queries = Queries.beside(__file__)

RETENTION = Change(actor="retention")


async def run(operators: Database) -> dict[str, Count]:
    """Delete old conversations of every tenant with a retention; returns counts by slug.

    Does nothing while another worker does it.
    """
    removed: dict[str, Count] = {}
    for tenant in await operators.all(queries.tenants_with_retention):
        done = await _retire(operators, tenant["id"], tenant["retention_days"])
        if done:
            removed[tenant["slug"]] = done
    if removed:
        log.info(
            "retention_removed",
            tenants=len(removed),
            conversations=sum(done.conversations for done in removed.values()),
            messages=sum(done.messages for done in removed.values()),
        )
    return removed


async def _retire(operators: Database, tenant_id: UUID, days: int) -> Count:
    async def batch(connection: asyncpg.Connection, done: Count) -> bool:
        rows = await connection.fetch(
            queries.next_to_retire, tenant_id, days, erasure.BATCH_CONVERSATIONS
        )
        await erasure.remove_some(connection, rows, done)
        return bool(rows)

    whose = Subject(tenant_id)
    return await erasure.in_batches(operators, batch, RETENTION, whose, "retention.remove")
