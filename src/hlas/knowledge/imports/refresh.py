"""Fetches pages and websites again, and takes what has changed in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hlas.errors import NotRefreshable, UnreadableSource
from hlas.knowledge import entries
from hlas.knowledge.entries import MOST_ENTRIES
from hlas.knowledge.imports import Limits, reading, sources
from hlas.knowledge.imports.reading import Job, Progress, Reading
from hlas.knowledge.imports.sources import Imported, Part, Source
from hlas.store.db import Database
from hlas.tenants.audit import COMMAND_LINE, Change

REFRESH = "knowledge.refresh"


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What became of one source: what was imported, or why nothing was."""

    location: str
    imported: Imported | None = None
    warnings: tuple[str, ...] = ()
    error: str = ""


async def fetch(
    database: Database,
    tenant_id: UUID,
    source: Source,
    limits: Limits,
    private_hosts: Sequence[str],
    on_page: Progress = lambda _pages: None,
) -> Reading:
    """What the source contains now."""
    if source.kind == "file":
        raise NotRefreshable(f"{source.location}: a file cannot be refreshed; import it again")
    stored, _ = await entries.page_entries(
        database, tenant_id, None, MOST_ENTRIES, source_id=source.id
    )
    job = Job(
        source.kind,
        source.location,
        source.language,
        limits,
        # A source without entries is known, too: a page that is gone is no error then.
        known=tuple(sorted({one.url for one in stored if one.url} | {source.location})),
        private_hosts=tuple(private_hosts),
    )
    return await reading.read(job, on_page=on_page)


async def refresh(
    database: Database,
    tenant_id: UUID,
    source: Source,
    private_hosts: Sequence[str],
    change: Change = COMMAND_LINE,
    limits: Limits | None = None,
    on_page: Progress = lambda _pages: None,
) -> Refreshed:
    """Fetch a source and save what has changed; if it cannot be fetched, nothing changes."""
    try:
        read = await fetch(database, tenant_id, source, limits or Limits(), private_hosts, on_page)
    except (UnreadableSource, NotRefreshable) as error:
        return Refreshed(source.location, error=str(error))
    if read.digest == source.digest:
        await sources.touch(database, tenant_id, source.id)
        imported = Imported(source.location, unchanged=source.entries)
    else:
        parts = [Part(read)]
        [imported] = await sources.save(database, tenant_id, parts, change, REFRESH)
    return Refreshed(source.location, imported, read.warnings)
