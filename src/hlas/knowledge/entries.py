"""What a tenant knows: questions and answers, and the ranking that finds the right one."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import asyncpg
import uuid_utils

from hlas.errors import EntryNotFound, QuestionTaken, TenantError, TooManyEntries
from hlas.knowledge.language import Language, meaningful_words
from hlas.store.db import Database, Queries, Row
from hlas.tenants import revisions
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.tenants.revisions import Expected

queries = Queries.beside(__file__)

LONGEST_QUESTION = 500
LONGEST_ANSWER = 8000
MOST_KEYWORDS = 50
LONGEST_KEYWORD = 80
# Ranking reads all that a tenant has, so this bounds what a visitor's question costs.
MOST_ENTRIES = 5_000
MOST_CHARACTERS = 4_000_000
BATCH_ENTRIES = 200
MATCHES = 3


class KnowledgeError(TenantError):
    """This change of the knowledge cannot be made."""


@dataclass(frozen=True, slots=True)
class Entry:
    question: str
    answer: str
    keywords: tuple[str, ...] = ()
    language: Language | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that may answer a question, and how sure that is, 0 to 1."""

    entry_id: str
    answer: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Saved:
    """What an import changed."""

    added: int
    updated: int
    unchanged: int
    removed: int


async def rank(database: Database, tenant_id: str, text: str, language: Language) -> list[Match]:
    """The tenant's entries that come nearest to the text, best first: all there is to replace."""
    words = meaningful_words(text)
    if not words:
        return []
    rows = await database.all(queries.rank, tenant_id, words, language, MATCHES)
    return [Match(str(row["id"]), row["answer"], row["confidence"]) for row in rows]


async def save(
    operators: Database,
    tenant_id: UUID,
    entries: Sequence[Entry],
    *,
    source: str,
    replace: bool = False,
    change: Change = COMMAND_LINE,
    on_progress: Callable[[int], None] = lambda _saved: None,
) -> Saved:
    """Add the entries, or update those with the same question; all of them or none.

    With replace, entries that are not among them are removed.
    """
    async with operators.transaction() as connection:
        if await connection.fetchval(queries.lock_tenant, tenant_id) is None:
            raise KnowledgeError("there is no such tenant")
        removed = await _remove_others(connection, tenant_id, entries) if replace else 0
        start = 0 if replace else await connection.fetchval(queries.last_position, tenant_id)
        added = updated = 0
        for first in range(0, len(entries), BATCH_ENTRIES):
            batch = _rows(entries[first : first + BATCH_ENTRIES], start + first)
            written = await connection.fetch(queries.save_entries, tenant_id, batch, replace)
            added += sum(row["added"] for row in written)
            updated += sum(not row["added"] for row in written)
            on_progress(len(batch))
        await _require_room(connection, tenant_id)
        saved = Saved(added, updated, len(entries) - added - updated, removed)
        await record(connection, change, tenant_id, "knowledge.import", source, after=asdict(saved))
    return saved


async def _require_room(connection: asyncpg.Connection, tenant_id: UUID) -> None:
    """The end of a transaction that adds: the tenant's knowledge is still within its bounds."""
    stored = await connection.fetchrow(queries.measure_entries, tenant_id)
    if stored["entries"] > MOST_ENTRIES:
        raise TooManyEntries(f"a tenant can have at most {MOST_ENTRIES} entries")
    if stored["characters"] > MOST_CHARACTERS:
        raise TooManyEntries(
            f"a tenant's entries can have at most {MOST_CHARACTERS} characters in all"
        )


def _count_characters(entry: dict[str, Any]) -> int:
    return sum(map(len, (entry["question"], entry["answer"], *entry["keywords"])))


async def _remove_others(
    connection: asyncpg.Connection, tenant_id: UUID, entries: Sequence[Entry]
) -> int:
    kept = [entry.question for entry in entries]
    status = await connection.execute(queries.remove_others, tenant_id, kept)
    return int(status.rpartition(" ")[2])


def _rows(entries: Sequence[Entry], start: int) -> list[dict[str, Any]]:
    return [
        {"id": str(uuid_utils.uuid7()), "position": position, **asdict(entry)}
        for position, entry in enumerate(entries, start=start + 1)
    ]


async def listed(operators: Database, tenant_id: UUID) -> list[dict[str, Any]]:
    rows = await operators.all(queries.list_entries, tenant_id)
    return [_entry(row) for row in rows]


async def remove(
    operators: Database, tenant_id: UUID, ids: Sequence[UUID], change: Change = COMMAND_LINE
) -> None:
    """Remove the entries; all of them or none."""
    async with operators.transaction() as connection:
        removed = await connection.fetch(queries.remove_entries, tenant_id, list(ids))
        missing = set(ids) - {UUID(str(row["id"])) for row in removed}
        if missing:
            raise KnowledgeError(f"there is no entry {min(map(str, missing))}")
        for row in removed:
            before = {"question": row["question"]}
            await record(connection, change, tenant_id, "knowledge.remove", str(row["id"]), before)


async def paged(
    database: Database, tenant_id: UUID, after: UUID | None, limit: int
) -> list[dict[str, Any]]:
    """A page of the entries, in the order they were made."""
    rows = await database.all(queries.page_of_entries, tenant_id, after, limit)
    return [_entry(row) for row in rows]


async def by_id(database: Database, tenant_id: UUID, entry_id: UUID) -> dict[str, Any]:
    return _found(await database.one(queries.entry_by_id, tenant_id, entry_id))


async def add(
    database: Database, tenant_id: UUID, entry: Entry, change: Change = COMMAND_LINE
) -> dict[str, Any]:
    entry_id = UUID(str(uuid_utils.uuid7()))
    async with _changing(database, tenant_id) as connection:
        row = await connection.fetchrow(queries.add_entry, tenant_id, entry_id, *_columns(entry))
        await _require_room(connection, tenant_id)
        after = asdict(entry)
        await record(connection, change, tenant_id, "knowledge.add", str(entry_id), after=after)
    return _entry(row)


async def update(
    database: Database,
    tenant_id: UUID,
    entry_id: UUID,
    entry: Entry,
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> dict[str, Any]:
    """Put another entry in the place of one."""
    async with _changing(database, tenant_id, entry_id) as connection:
        old = _found(await connection.fetchrow(queries.entry_by_id, tenant_id, entry_id))
        revisions.require(expected, old)
        before, after = {name: old[name] for name in asdict(entry)}, asdict(entry)
        if before == {**after, "keywords": list(entry.keywords)}:
            return old
        row = await connection.fetchrow(queries.update_entry, tenant_id, entry_id, *_columns(entry))
        # An entry may always get smaller, however much there was before there was a bound.
        if _count_characters(after) > _count_characters(before):
            await _require_room(connection, tenant_id)
        await record(
            connection, change, tenant_id, "knowledge.update", str(entry_id), before, after
        )
    return _entry(row)


async def remove_one(
    database: Database,
    tenant_id: UUID,
    entry_id: UUID,
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> None:
    async with _changing(database, tenant_id, entry_id) as connection:
        old = _found(await connection.fetchrow(queries.entry_by_id, tenant_id, entry_id))
        revisions.require(expected, old)
        await connection.execute(queries.remove_entries, tenant_id, [entry_id])
        before = {name: old[name] for name in ("question", "answer", "keywords", "language")}
        await record(connection, change, tenant_id, "knowledge.remove", str(entry_id), before)


@asynccontextmanager
async def _changing(
    database: Database, tenant_id: UUID, entry_id: UUID | None = None
) -> AsyncIterator[asyncpg.Connection]:
    """A transaction with the entry locked, if there is one already."""
    try:
        async with database.transaction() as connection:
            if entry_id is not None:
                await connection.execute(queries.lock_entry, tenant_id, entry_id)
            yield connection
    except asyncpg.UniqueViolationError:
        raise QuestionTaken("the tenant's knowledge answers this question already") from None


def _columns(entry: Entry) -> tuple[str, str, list[str], Language | None]:
    return entry.question, entry.answer, list(entry.keywords), entry.language


def _found(row: Row | None) -> dict[str, Any]:
    if row is None:
        raise EntryNotFound("there is no such entry")
    return _entry(row)


def _entry(row: Row) -> dict[str, Any]:
    return {**row, "id": str(row["id"])}
