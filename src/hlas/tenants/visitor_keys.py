"""The keys a tenant's server signs its visitors' identities with; several at a time to rotate."""

import re
from typing import Any
from uuid import UUID

from hlas.errors import TooManyVisitorKeys, VisitorKeyNotFound
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.visitors.identities import Key

queries = Queries.beside(__file__)

_KID = re.compile(r"[0-9a-f]{16}")
# The old one, the new one, and some for a tenant with several servers.
MOST = 5


async def listed(database: Database, tenant_id: UUID) -> list[dict[str, Any]]:
    """Oldest first; nothing that one could sign with."""
    return [_key(row) for row in await database.all(queries.list_keys, tenant_id)]


async def add(
    database: Database, tenant_id: UUID, key: Key, change: Change = COMMAND_LINE
) -> dict[str, Any]:
    """Let the key sign; adding one that is there changes nothing."""
    async with database.transaction() as connection:
        await connection.execute(queries.lock_tenant, tenant_id)
        known = await connection.fetch(queries.list_keys, tenant_id)
        if len(known) >= MOST and key.kid not in {row["kid"] for row in known}:
            raise TooManyVisitorKeys(f"{MOST} keys are enough; remove one that signs no more")
        added = await connection.execute(
            queries.add_key, tenant_id, key.kid, key.algorithm, key.material
        )
        if added == "INSERT 0 1":
            after = {"algorithm": key.algorithm}
            await record(connection, change, tenant_id, "visitor_key.add", key.kid, after=after)
        rows = await connection.fetch(queries.list_keys, tenant_id)
    return next(_key(row) for row in rows if row["kid"] == key.kid)


async def remove(
    database: Database, tenant_id: UUID, kid: str, change: Change = COMMAND_LINE
) -> None:
    """What it signed opens no session any more; sessions that are open go on."""
    async with database.transaction() as connection:
        named = kid if _KID.fullmatch(kid) else ""
        row = await connection.fetchrow(queries.remove_key, tenant_id, named)
        if row is None:
            raise VisitorKeyNotFound("there is no such key; `hlas visitor-key list` shows all")
        before = {"algorithm": row["algorithm"]}
        await record(connection, change, tenant_id, "visitor_key.remove", kid, before)


def _key(row: Row) -> dict[str, Any]:
    return {"kid": row["kid"], "algorithm": row["algorithm"], "created_at": row["created_at"]}
