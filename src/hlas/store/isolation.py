"""Whether the database isolates tenants on every table, read from its catalogue."""

from dataclasses import dataclass

import asyncpg

from hlas.store.db import Queries, Row
from hlas.store.logins import APPLICATION, Logins

queries = Queries.beside(__file__)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with tenants' rows; `fault` is empty if they are isolated."""

    name: str
    fault: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}"


async def list_tables(connection: asyncpg.Connection, logins: Logins) -> list[Table]:
    rows = await connection.fetch(queries.tables, logins.role(APPLICATION))
    return [Table(row["name"], _find_fault(row)) for row in rows]


def _find_fault(row: Row) -> str:
    if not row["enabled"]:
        return "row-level security is off"
    if not row["forced"]:
        return "row-level security is not forced"
    if not row["guarded"]:
        return "the policy tenant_isolation is missing or changed"
    return "another policy lets visitors' requests in" if row["open"] else ""
