"""Fetches pages and websites again, and takes what has changed in them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from hlas.errors import NotRefreshable, TenantError
from hlas.knowledge import entries
from hlas.knowledge.entries import MOST_ENTRIES
from hlas.knowledge.imports import CrawlLimits, reading, sources
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


async def make_job(database: Database, tenant_id: UUID, source: Source, limits: CrawlLimits) -> Job:
    """What has to be read again."""
    if source.kind == "file":
        raise NotRefreshable(f"{source.location}: a file cannot be refreshed; import it again")
    stored, _ = await entries.page_entries(
        database, tenant_id, None, MOST_ENTRIES, source_id=source.id
    )
    # The source itself, too, where it has no entries: then a page that is gone is not an error.
    known = {one.url for one in stored if one.url} | {source.location}
    return Job(source.kind, source.location, source.language, limits, known=tuple(sorted(known)))


async def take(
    database: Database,
    tenant_id: UUID,
    read: Reading,
    change: Change = COMMAND_LINE,
) -> Imported:
    """Save what has changed."""
    [imported] = await sources.save(database, tenant_id, [Part(read)], change, REFRESH)
    return imported


async def refresh(
    database: Database,
    tenant_id: UUID,
    source: Source,
    private_hosts: Sequence[str],
    on_page: Progress = lambda _pages: None,
) -> Refreshed:
    """Fetch a source and save what has changed; if it cannot be fetched, nothing changes."""
    try:
        job = await make_job(database, tenant_id, source, CrawlLimits())
        job = replace(job, private_hosts=tuple(private_hosts))
        read = await reading.read(job, on_page=on_page)
        imported = await take(database, tenant_id, read)
    except TenantError as error:
        return Refreshed(source.location, error=str(error))
    return Refreshed(source.location, imported, read.warnings)
