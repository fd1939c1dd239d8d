"""The indexes of tenants' knowledge that a worker keeps, brought up to date before each use."""

import asyncio
from collections import OrderedDict

from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.index import Index
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

PAGE_ENTRIES = 500
# Other work gets its turn after so much text, which takes a few milliseconds.
SLICE_CHARACTERS = 5000
# Bounds the indexes of a worker; the least recently used go first.
MOST_INDEXED_CHARACTERS = 8_000_000


class Library:
    """One for each worker."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, Index] = OrderedDict()

    async def open(self, database: Database, tenant_id: str) -> Index:
        """The tenant's index as of now. Callers must not open the same tenant concurrently."""
        index = self._indexes.setdefault(tenant_id, Index())
        self._indexes.move_to_end(tenant_id)
        state = await database.one(queries.knowledge_state, tenant_id)
        assert state is not None
        while index.version < state["version"]:
            changed = await database.all(
                queries.changed_entries, tenant_id, index.version, PAGE_ENTRIES
            )
            if not changed:
                break
            await _take(index, changed)
        if len(index) != state["entries"]:
            index.keep(await list_entry_ids(database, tenant_id))
        self._make_room()
        return index

    def _make_room(self) -> None:
        while len(self._indexes) > 1 and self._count_characters() > MOST_INDEXED_CHARACTERS:
            self._indexes.popitem(last=False)

    def _count_characters(self) -> int:
        return sum(index.characters for index in self._indexes.values())


async def _take(index: Index, rows: list[Row]) -> None:
    taken = 0
    for row in rows:
        entry = Entry.from_row(row)
        index.put(str(row["id"]), entry)
        index.version = row["version"]
        taken += entry.count_characters()
        if taken >= SLICE_CHARACTERS:
            taken = 0
            await asyncio.sleep(0)


async def list_entry_ids(database: Database, tenant_id: str) -> set[str]:
    return {str(row["id"]) for row in await database.all(queries.entry_ids, tenant_id)}
