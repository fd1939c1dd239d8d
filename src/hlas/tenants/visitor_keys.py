"""The keys a tenant's server signs its visitors' identities with; several at a time to rotate."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field

from hlas.errors import TooManyVisitorKeys, VisitorKeyNotFound
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.visitors.identities import Algorithm, Key

queries = Queries.beside(__file__)

_KID = re.compile(r"[0-9a-f]{16}")
# The old key, the new one, and some for a tenant with several servers.
MOST = 5


@dataclass(frozen=True, slots=True)
class VisitorKey:
    """A key as it is listed, without its secret."""

    kid: Annotated[str, Field(description="the key's id, in the header of the tokens it signs")]
    algorithm: Algorithm
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["kid"], row["algorithm"], row["created_at"])

    def with_secret(self, secret: str | None) -> "AddedVisitorKey":
        return AddedVisitorKey(self.kid, self.algorithm, self.created_at, secret)


@dataclass(frozen=True, slots=True)
class AddedVisitorKey(VisitorKey):
    """A key as it is shown once, when it is added."""

    secret: Annotated[str | None, Field(description="for HS256; it is not shown again")] = field(
        repr=False
    )


async def list_keys(database: Database, tenant_id: UUID) -> list[VisitorKey]:
    """Oldest first, without secrets."""
    rows = await database.all(queries.list_keys, tenant_id)
    return [VisitorKey.from_row(row) for row in rows]


async def add(
    database: Database, tenant_id: UUID, key: Key, change: Change = COMMAND_LINE
) -> VisitorKey:
    """Accept what the key signs; adding a key a second time changes nothing."""
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
    return next(VisitorKey.from_row(row) for row in rows if row["kid"] == key.kid)


async def remove(
    database: Database, tenant_id: UUID, kid: str, change: Change = COMMAND_LINE
) -> None:
    """Refuse new sessions with what the key signed; open sessions continue."""
    async with database.transaction() as connection:
        valid = kid if _KID.fullmatch(kid) else ""
        row = await connection.fetchrow(queries.remove_key, tenant_id, valid)
        if row is None:
            raise VisitorKeyNotFound("there is no such key; `hlas visitor-key list` shows all")
        before = {"algorithm": row["algorithm"]}
        await record(connection, change, tenant_id, "visitor_key.remove", kid, before)
