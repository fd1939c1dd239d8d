"""Where knowledge was imported from: files, pages and websites, and how their entries are saved."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Self
from uuid import UUID

import asyncpg
import uuid_utils

from hlas.errors import SourceNotFound, TooManySources
from hlas.knowledge import entries
from hlas.knowledge.entries import BATCH_ENTRIES, StoredEntry
from hlas.knowledge.files import OWN_SUFFIXES
from hlas.knowledge.imports.preview import Item, Preview, compare, compare_own
from hlas.knowledge.imports.reading import Reading, SourceKind
from hlas.knowledge.language import Language
from hlas.store.db import Database, Queries, Row
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

MOST_SOURCES = 200
IMPORT = "knowledge.import"


@dataclass(frozen=True, slots=True)
class Source:
    id: UUID
    kind: SourceKind
    # The name of a file, or an address.
    location: str
    language: Language | None
    # Questions that a refresh does not add.
    left_out: tuple[str, ...]
    created_at: datetime
    refreshed_at: datetime
    entries: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            kind=row["kind"],
            location=row["location"],
            language=row["language"],
            left_out=tuple(row["left_out"]),
            created_at=row["created_at"],
            refreshed_at=row["refreshed_at"],
            entries=row["entries"],
        )


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import changed."""

    location: str
    added: int = 0
    updated: int = 0
    removed: int = 0
    unchanged: int = 0
    # Entries that stay although the source has another text.
    kept: int = 0

    @property
    def is_change(self) -> bool:
        return bool(self.added or self.updated or self.removed)


@dataclass(frozen=True, slots=True)
class Part:
    """A source to be saved; `chosen` are the questions that somebody takes of it."""

    reading: Reading
    # None: what is taken by default.
    chosen: frozenset[str] | None = None


def is_own(reading: Reading) -> bool:
    """Files in our own formats are a person's text, so they are no sources."""
    return reading.kind == "file" and reading.location.lower().endswith(OWN_SUFFIXES)


async def list_sources(database: Database, tenant_id: UUID) -> list[Source]:
    return [Source.from_row(row) for row in await database.all(queries.list_sources, tenant_id)]


async def find_source(database: Database, tenant_id: UUID, name: str) -> Source:
    """The source with this id or location."""
    for source in await list_sources(database, tenant_id):
        if name in {str(source.id), source.location}:
            return source
    raise SourceNotFound(f"there is no source {name}")


async def preview(
    database: Database, tenant_id: UUID, readings: Sequence[Reading]
) -> list[Preview]:
    """What saving these would change."""
    stored = await entries.list_entries(database, tenant_id)
    known = {one.location: one for one in await list_sources(database, tenant_id)}
    previews = []
    for reading in readings:
        source = known.get(reading.location)
        if is_own(reading):
            previews.append(compare_own(reading, stored))
        elif source is None:
            previews.append(compare(reading, stored, None))
        else:
            previews.append(compare(reading, stored, source.id, source.left_out))
    return previews


async def save(
    database: Database,
    tenant_id: UUID,
    parts: Sequence[Part],
    change: Change = COMMAND_LINE,
    action: str = IMPORT,
) -> list[Imported]:
    """Save all of them or none. What changed since a preview is compared again."""
    done = []
    async with entries.lock(database, tenant_id) as connection:
        for part in parts:
            rows = await connection.fetch(entries.queries.list_entries, tenant_id)
            stored = [StoredEntry.from_row(row) for row in rows]
            work = _save_own if is_own(part.reading) else _save_source
            imported = await work(connection, tenant_id, part, stored)
            location = part.reading.location
            # A refresh that finds nothing new is not audited.
            if imported.is_change or action == IMPORT:
                after = asdict(imported)
                await record(connection, change, tenant_id, action, location, after=after)
            done.append(imported)
        await entries.require_room(connection, tenant_id)
    return done


async def _save_own(
    connection: asyncpg.Connection, tenant_id: UUID, part: Part, stored: Sequence[StoredEntry]
) -> Imported:
    compared = compare_own(part.reading, stored)
    chosen = compared.choose_default() if part.chosen is None else part.chosen
    taken = [item.entry for item in compared.items if item.is_open and item.key in chosen]
    added, updated = await entries.write(connection, tenant_id, taken)
    unchanged = len(compared.items) - added - updated
    return Imported(part.reading.location, added=added, updated=updated, unchanged=unchanged)


async def _save_source(
    connection: asyncpg.Connection, tenant_id: UUID, part: Part, stored: Sequence[StoredEntry]
) -> Imported:
    reading = part.reading
    row = await connection.fetchrow(queries.source_by_location, tenant_id, reading.location)
    if row is None and await _is_full(connection, tenant_id):
        raise TooManySources(f"a tenant can have at most {MOST_SOURCES} sources")
    left_out = list(row["left_out"]) if row else []
    source_id = UUID(str(row["id"])) if row else UUID(str(uuid_utils.uuid7()))
    compared = compare(reading, stored, source_id if row else None, left_out)
    chosen = compared.choose_default() if part.chosen is None else part.chosen
    taken = [item for item in compared.items if item.is_open and item.key in chosen]
    refused = [item for item in compared.items if item.is_open and item.key not in chosen]
    await connection.execute(
        queries.save_source,
        *(tenant_id, source_id, reading.kind, reading.location, reading.language),
        _leave_out(left_out, taken, refused),
    )
    await _write(connection, tenant_id, source_id, taken)
    kept = [item.stored.id for item in refused if item.stored and item.state in _DECIDED]
    await connection.execute(queries.keep_entries, tenant_id, kept)
    return _summarise(compared, taken, refused)


# Kept against the source by a choice, which the next refresh must respect.
_DECIDED = frozenset({"changed", "removed"})


async def _is_full(connection: asyncpg.Connection, tenant_id: UUID) -> bool:
    return bool(await connection.fetchval(queries.count_sources, tenant_id) >= MOST_SOURCES)


def _leave_out(before: list[str], taken: list[Item], refused: list[Item]) -> list[str]:
    now = [item.key for item in refused if item.state in {"new", "left_out"}]
    return sorted({*before, *now} - {item.key for item in taken})


async def _write(
    connection: asyncpg.Connection, tenant_id: UUID, source_id: UUID, taken: Sequence[Item]
) -> None:
    removed = [item.stored.id for item in taken if item.stored and item.state == "removed"]
    await connection.execute(queries.drop_entries, tenant_id, removed)
    rest = [item for item in taken if item.state != "removed"]
    replaced = [{"id": str(item.stored.id), **asdict(item.entry)} for item in rest if item.stored]
    added = [item.entry for item in rest if item.stored is None]
    start = await connection.fetchval(entries.queries.last_position, tenant_id)
    for first in range(0, len(replaced), BATCH_ENTRIES):
        batch = replaced[first : first + BATCH_ENTRIES]
        await connection.execute(queries.replace_entries, tenant_id, batch, source_id)
    for first in range(0, len(added), BATCH_ENTRIES):
        rows = entries.make_rows(added[first : first + BATCH_ENTRIES], start + first)
        await connection.execute(queries.add_entries, tenant_id, rows, source_id)


def _summarise(compared: Preview, taken: list[Item], refused: list[Item]) -> Imported:
    return Imported(
        compared.reading.location,
        added=sum(item.stored is None for item in taken),
        updated=sum(item.stored is not None and item.state != "removed" for item in taken),
        removed=sum(item.state == "removed" for item in taken),
        unchanged=compared.count("unchanged"),
        kept=sum(item.stored is not None for item in refused),
    )


async def remove_source(
    database: Database, tenant_id: UUID, name: str, change: Change = COMMAND_LINE
) -> int:
    """Remove a source with its entries; those that a person has changed stay.

    Returns how many entries were removed.
    """
    source = await find_source(database, tenant_id, name)
    async with entries.lock(database, tenant_id) as connection:
        await connection.execute(queries.release_edited, tenant_id, source.id)
        number: int = await connection.fetchval(queries.count_imported, tenant_id, source.id)
        if await connection.fetchval(queries.remove_source, tenant_id, source.id) is None:
            raise SourceNotFound(f"there is no source {name}")
        before = {"kind": source.kind, "entries": number}
        await record(
            connection, change, tenant_id, "knowledge.remove_source", source.location, before
        )
    return number
