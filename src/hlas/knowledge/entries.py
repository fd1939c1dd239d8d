"""A tenant's knowledge: questions with answers, and passages of prose."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias
from uuid import UUID

import asyncpg
import uuid_utils

from hlas.errors import EntryNotFound, QuestionTaken, TenantError, TooManyEntries
from hlas.knowledge.language import Language
from hlas.store.db import Database, Queries, Row
from hlas.tenants import revisions
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.tenants.revisions import Expected

queries = Queries.beside(__file__)

LONGEST_QUESTION = 500
LONGEST_ANSWER = 8000
MOST_KEYWORDS = 50
LONGEST_KEYWORD = 80
MOST_WORDINGS = 50
LONGEST_URL = 2000
LONGEST_SEARCH = 200
# Workers keep an index of all entries of a tenant, so these bound its size.
MOST_ENTRIES = 5_000
MOST_CHARACTERS = 4_000_000
BATCH_ENTRIES = 200

# A passage is prose without a question: its question is the heading it stands under.
Kind: TypeAlias = Literal["answer", "passage"]


class KnowledgeError(TenantError):
    """The knowledge cannot be changed this way."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What somebody writes: a question and its answer, or a heading and its passage."""

    question: str
    answer: str
    keywords: tuple[str, ...] = ()
    language: Language | None = None
    kind: Kind = "answer"
    # Other ways to ask the same question.
    wordings: tuple[str, ...] = ()
    # The page it was taken from.
    url: str = ""

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            row["question"],
            row["answer"],
            tuple(row["keywords"]),
            row["language"],
            row["kind"],
            tuple(row["wordings"]),
            row["url"],
        )

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Self:
        """As `asdict` and JSON wrote it."""
        lists = {name: tuple(given[name]) for name in ("keywords", "wordings")}
        return cls(**{**given, **lists})

    def count_characters(self) -> int:
        return sum(map(len, (self.question, self.answer, *self.keywords, *self.wordings)))


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry in the database."""

    id: UUID
    question: str
    answer: str
    keywords: tuple[str, ...]
    language: Language | None
    kind: Kind
    wordings: tuple[str, ...]
    url: str
    source_id: UUID | None
    # The question in the source, and whether a person has changed the entry since.
    imported_as: str | None
    is_edited: bool
    created_at: datetime
    updated_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            question=row["question"],
            answer=row["answer"],
            keywords=tuple(row["keywords"]),
            language=row["language"],
            kind=row["kind"],
            wordings=tuple(row["wordings"]),
            url=row["url"],
            source_id=row["source_id"] and UUID(str(row["source_id"])),
            imported_as=row["imported_as"],
            is_edited=row["is_edited"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
        )

    @property
    def entry(self) -> Entry:
        return Entry(
            self.question,
            self.answer,
            self.keywords,
            self.language,
            self.kind,
            self.wordings,
            self.url,
        )

    @property
    def revision(self) -> str:
        return revisions.tag(asdict(self))


@dataclass(frozen=True, slots=True)
class Saved:
    """What an import changed."""

    added: int
    updated: int
    unchanged: int
    removed: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many entries of each kind a tenant has."""

    answers: int = 0
    passages: int = 0

    @property
    def entries(self) -> int:
        return self.answers + self.passages


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

    With `replace`, the tenant's other entries are removed.
    """
    async with lock(operators, tenant_id) as connection:
        removed = await _remove_others(connection, tenant_id, entries) if replace else 0
        added, updated = await write(
            connection, tenant_id, entries, replace=replace, on_progress=on_progress
        )
        await require_room(connection, tenant_id)
        saved = Saved(added, updated, len(entries) - added - updated, removed)
        await record(connection, change, tenant_id, "knowledge.import", source, after=asdict(saved))
    return saved


async def write(
    connection: asyncpg.Connection,
    tenant_id: UUID,
    entries: Sequence[Entry],
    *,
    replace: bool = False,
    on_progress: Callable[[int], None] = lambda _saved: None,
) -> tuple[int, int]:
    """Add entries, or update those with the same question; returns how many of each."""
    start = 0 if replace else await connection.fetchval(queries.last_position, tenant_id)
    added = updated = 0
    for first in range(0, len(entries), BATCH_ENTRIES):
        batch = make_rows(entries[first : first + BATCH_ENTRIES], start + first)
        written = await connection.fetch(queries.save_entries, tenant_id, batch, replace)
        added += sum(row["added"] for row in written)
        updated += sum(not row["added"] for row in written)
        on_progress(len(batch))
    return added, updated


async def require_room(connection: asyncpg.Connection, tenant_id: UUID) -> None:
    """Call this last in a transaction that adds text: it rolls back over the tenant's limits."""
    stored = await connection.fetchrow(queries.measure_entries, tenant_id)
    if stored["entries"] > MOST_ENTRIES:
        raise TooManyEntries(f"a tenant can have at most {MOST_ENTRIES} entries")
    if stored["characters"] > MOST_CHARACTERS:
        raise TooManyEntries(
            f"a tenant's entries can have at most {MOST_CHARACTERS} characters in all"
        )


async def _remove_others(
    connection: asyncpg.Connection, tenant_id: UUID, entries: Sequence[Entry]
) -> int:
    kept = [entry.question for entry in entries]
    status = await connection.execute(queries.remove_others, tenant_id, kept)
    return int(status.rpartition(" ")[2])


def make_rows(entries: Sequence[Entry], start: int) -> list[dict[str, object]]:
    return [
        {"id": str(uuid_utils.uuid7()), "position": position, **asdict(entry)}
        for position, entry in enumerate(entries, start=start + 1)
    ]


async def list_entries(operators: Database, tenant_id: UUID) -> list[StoredEntry]:
    """All entries, in the order of their file."""
    rows = await operators.all(queries.list_entries, tenant_id)
    return [StoredEntry.from_row(row) for row in rows]


async def remove_entries(
    operators: Database, tenant_id: UUID, ids: Sequence[UUID], change: Change = COMMAND_LINE
) -> None:
    """Remove the entries; all of them or none."""
    async with lock(operators, tenant_id) as connection:
        removed = await connection.fetch(queries.remove_entries, tenant_id, list(ids))
        missing = set(ids) - {UUID(str(row["id"])) for row in removed}
        if missing:
            raise KnowledgeError(f"there is no entry {min(map(str, missing))}")
        for row in removed:
            before = {"question": row["question"]}
            await record(connection, change, tenant_id, "knowledge.remove", str(row["id"]), before)


async def page_entries(
    database: Database,
    tenant_id: UUID,
    after: UUID | None,
    limit: int,
    *,
    search: str = "",
    kind: Kind | None = None,
    source_id: UUID | None = None,
) -> tuple[list[StoredEntry], UUID | None]:
    """A page of entries, oldest first, and the cursor of the next page.

    With `search`, only entries that contain all of its words.
    """
    rows = await database.all(
        queries.page_of_entries, tenant_id, after, limit + 1, search.strip(), kind, source_id
    )
    page = [StoredEntry.from_row(row) for row in rows[:limit]]
    return page, page[-1].id if len(rows) > limit else None


async def count_entries(database: Database, tenant_id: UUID) -> Counts:
    rows = await database.all(queries.count_entries, tenant_id)
    return Counts(**{f"{row['kind']}s": row["entries"] for row in rows})


async def find_entry(database: Database, tenant_id: UUID, entry_id: UUID) -> StoredEntry:
    return _require(await database.one(queries.entry_by_id, tenant_id, entry_id))


async def add(
    database: Database, tenant_id: UUID, entry: Entry, change: Change = COMMAND_LINE
) -> StoredEntry:
    async with lock(database, tenant_id) as connection:
        return await add_within(connection, tenant_id, entry, change)


async def add_within(
    connection: asyncpg.Connection, tenant_id: UUID, entry: Entry, change: Change
) -> StoredEntry:
    """Add an entry in a transaction of `lock`."""
    entry_id = UUID(str(uuid_utils.uuid7()))
    row = await connection.fetchrow(queries.add_entry, tenant_id, entry_id, *_columns(entry))
    await require_room(connection, tenant_id)
    after = asdict(entry)
    await record(connection, change, tenant_id, "knowledge.add", str(entry_id), after=after)
    return StoredEntry.from_row(row)


async def update(
    database: Database,
    tenant_id: UUID,
    entry_id: UUID,
    entry: Entry,
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> StoredEntry:
    """Replace the content of an entry."""
    async with lock(database, tenant_id) as connection:
        old = await find_within(connection, tenant_id, entry_id)
        revisions.require(expected, old.revision)
        return await update_within(connection, tenant_id, old, entry, change)


async def find_within(
    connection: asyncpg.Connection, tenant_id: UUID, entry_id: UUID
) -> StoredEntry:
    """Read an entry in a transaction of `lock`."""
    return _require(await connection.fetchrow(queries.entry_by_id, tenant_id, entry_id))


async def update_within(
    connection: asyncpg.Connection, tenant_id: UUID, old: StoredEntry, entry: Entry, change: Change
) -> StoredEntry:
    """Replace the content of an entry in a transaction of `lock`."""
    if old.entry == entry:
        return old
    row = await connection.fetchrow(queries.update_entry, tenant_id, old.id, *_columns(entry))
    # An entry may always become smaller, even where a tenant is over a limit set later.
    if entry.count_characters() > old.entry.count_characters():
        await require_room(connection, tenant_id)
    before, after = asdict(old.entry), asdict(entry)
    await record(connection, change, tenant_id, "knowledge.update", str(old.id), before, after)
    return StoredEntry.from_row(row)


async def remove_entry(
    database: Database,
    tenant_id: UUID,
    entry_id: UUID,
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> None:
    async with lock(database, tenant_id) as connection:
        old = _require(await connection.fetchrow(queries.entry_by_id, tenant_id, entry_id))
        revisions.require(expected, old.revision)
        await connection.execute(queries.remove_entries, tenant_id, [entry_id])
        before = asdict(old.entry)
        await record(connection, change, tenant_id, "knowledge.remove", str(entry_id), before)


@asynccontextmanager
async def lock(database: Database, tenant_id: UUID) -> AsyncIterator[asyncpg.Connection]:
    """A transaction in which nobody else changes the tenant's knowledge."""
    try:
        async with database.transaction() as connection:
            # So that versions are committed in order (ADR-0015).
            await connection.execute(queries.lock_knowledge, str(tenant_id))
            yield connection
    except asyncpg.ForeignKeyViolationError:
        raise KnowledgeError("there is no such tenant") from None
    except asyncpg.UniqueViolationError:
        raise QuestionTaken("the tenant's knowledge answers this question already") from None


def _columns(
    entry: Entry,
) -> tuple[str, str, list[str], Language | None, Kind, list[str], str]:
    return (
        entry.question,
        entry.answer,
        list(entry.keywords),
        entry.language,
        entry.kind,
        list(entry.wordings),
        entry.url,
    )


def _require(row: Row | None) -> StoredEntry:
    if row is None:
        raise EntryNotFound("there is no such entry")
    return StoredEntry.from_row(row)
