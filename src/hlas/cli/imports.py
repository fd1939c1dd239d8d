"""Importing a tenant's knowledge from the command line."""

import dataclasses
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hlas import settings as configuration
from hlas.cli.database import AsJson, show, with_operators
from hlas.errors import TenantError
from hlas.knowledge import entries, files
from hlas.knowledge.entries import Entry, KnowledgeError
from hlas.knowledge.files import OWN_SUFFIXES
from hlas.knowledge.imports import CrawlLimits, reading, refresh, sources
from hlas.knowledge.imports.documents import LARGEST_DOCUMENT
from hlas.knowledge.imports.preview import DEFAULT, Preview, State
from hlas.knowledge.imports.reading import Job, Reading
from hlas.knowledge.imports.refresh import Refreshed
from hlas.knowledge.imports.sources import Imported, Part, Source
from hlas.knowledge.language import Language
from hlas.store.db import Database
from hlas.tenants import tenants

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]

# How many entries of a source a preview lists; it counts all.
MOST_LISTED = 40
MARKS: dict[State, str] = {
    "new": "+",
    "changed": "~",
    "removed": "-",
    "edited": "=",
    "taken": "=",
    "left_out": "=",
}
REASONS: dict[State, str] = {
    "edited": "  (kept: edited since its import)",
    "taken": "  (kept: another entry has this question)",
    "left_out": "  (left out: removed before)",
}


async def find_tenant_id(operators: Database, slug: str) -> UUID:
    return (await tenants.find_tenant(operators, slug)).id


def import_sources(
    place: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|URL...",
            help="Markdown (`## question`, then the answer) or CSV (question, answer, "
            "keywords, language, kind, wordings, url); .html, .pdf, .docx or .txt; "
            "or the address of a page.",
        ),
    ] = None,
    *,
    tenant: Tenant,
    site: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A website, or its sitemap: all its pages are read."),
    ] = None,
    language: Annotated[
        Language | None,
        typer.Option(metavar="LANGUAGE", help="cs or en, for entries that name no language."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Remove entries that are not in the Markdown or CSV file."),
    ] = False,
    pages: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", min=1, max=1000, help="The most pages to read of a website."
        ),
    ] = 200,
    yes: Annotated[bool, typer.Option("--yes", help="Save without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import files, pages or websites, after a preview.

    Adds entries and updates those that have changed; of all files and addresses or of none. What
    would change is shown first and saved after a confirmation. Markdown and CSV files alone are
    saved at once.
    """
    places, sites = place or [], site or []
    if not places and not sites:
        raise TenantError("name a file, an address or --site URL")
    if not sites and all(map(_is_own, places)):
        return _import_own([Path(one) for one in places], tenant, language, replace, as_json)
    if replace:
        raise TenantError("--replace is for Markdown and CSV files")
    jobs = [_make_job(one, language) for one in places]
    jobs += [Job("site", one, language, CrawlLimits(pages=pages)) for one in sites]
    _import_jobs(jobs, tenant, yes=yes, as_json=as_json)
    return None


def _is_url(place: str) -> bool:
    return place.lower().startswith(("https://", "http://"))


def _is_own(place: str) -> bool:
    """Markdown and CSV; a name without a suffix is Markdown, too."""
    return not _is_url(place) and Path(place).suffix.lower() in {*OWN_SUFFIXES, ".markdown", ""}


def _make_job(place: str, language: Language | None) -> Job:
    return Job("page" if _is_url(place) else "file", place, language)


def _import_own(
    paths: Sequence[Path],
    tenant: str,
    language: Language | None,
    replace: bool,  # noqa: FBT001  # as the option has it
    as_json: bool,  # noqa: FBT001  # the same
) -> None:
    found = _read_own(paths, language)

    async def work(operators: Database) -> entries.Saved:
        tenant_id = await find_tenant_id(operators, tenant)
        # On standard error, and only on a terminal.
        with typer.progressbar(
            length=len(found),
            label="Importing",
            file=sys.stderr,
            hidden=not sys.stderr.isatty(),
        ) as bar:
            return await entries.save(
                operators,
                tenant_id,
                found,
                source=", ".join(path.name for path in paths),
                replace=replace,
                on_progress=bar.update,
            )

    saved = with_operators(work)
    show(
        asdict(saved),
        as_json=as_json,
        text=f"{tenant}: {saved.added} added, {saved.updated} updated, "
        f"{saved.unchanged} unchanged, {saved.removed} removed.",
    )


def _read_own(paths: Sequence[Path], language: Language | None) -> list[Entry]:
    found: dict[str, Entry] = {}
    for path in paths:
        for entry in files.read(path, language):
            if entry.question in found:
                raise KnowledgeError(f"{path}: another file has the question {entry.question!r}")
            found[entry.question] = entry
    return list(found.values())


def _import_jobs(jobs: Sequence[Job], tenant: str, *, yes: bool, as_json: bool) -> None:
    hosts = configuration.load().outbound_private_hosts

    async def work(operators: Database) -> tuple[list[Preview], list[Imported] | None]:
        tenant_id = await find_tenant_id(operators, tenant)
        readings = [await _read(job, hosts) for job in jobs]
        previews = await sources.preview(operators, tenant_id, readings)
        if not as_json:
            show(None, as_json=False, text="\n".join(map(_describe, previews)))
        if not yes and not _confirm(as_json=as_json):
            return previews, None
        return previews, await sources.save(operators, tenant_id, [Part(one) for one in readings])

    previews, imported = with_operators(work)
    outcome = {
        "sources": [_summarise(one) for one in previews],
        "saved": imported is not None,
    }
    text = "\n".join(_describe_saved(one) for one in imported or ())
    show(outcome, as_json=as_json, text=text)
    if imported is None:
        raise TenantError("nothing was saved; --yes saves without asking")


def _confirm(*, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        return False
    return typer.confirm("Save this?", err=True)


async def _read(job: Job, private_hosts: tuple[str, ...]) -> Reading:
    data = b""
    if job.kind == "file":
        data = _read_file(Path(job.location))
        job = dataclasses.replace(job, location=Path(job.location).name)
    job = reading.normalise(dataclasses.replace(job, private_hosts=private_hosts))
    with _count_pages(job.location) as count:
        return await reading.read(job, data, count)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        raise KnowledgeError(f"{path}: {error.strerror or error}") from None
    if len(data) > LARGEST_DOCUMENT:
        raise KnowledgeError(f"{path}: larger than {LARGEST_DOCUMENT // 2**20} MB")
    return data


@contextmanager
def _count_pages(location: str) -> Iterator[Callable[[int], None]]:
    """Show how many pages were read, in one line of a terminal."""
    shown = 0

    def count(pages: int) -> None:
        nonlocal shown
        if sys.stderr.isatty():
            shown = pages
            typer.echo(f"\r{location}: {pages} pages", nl=False, err=True)

    try:
        yield count
    finally:
        if shown:
            typer.echo(err=True)


def _describe(preview: Preview) -> str:
    """The preview of a source, for the terminal."""
    lines = [f"{preview.reading.location}: {_count(preview)}"]
    listed = [item for item in preview.items if item.is_open]
    for item in listed[:MOST_LISTED]:
        mark, reason = MARKS[item.state], REASONS.get(item.state, "")
        lines.append(f"  {mark} {item.entry.kind:<7}  {item.entry.question}{reason}")
        if item.state in DEFAULT:
            lines.append(f"{'':13}{textwrap.shorten(item.entry.answer, 80, placeholder=' ...')}")
    if len(listed) > MOST_LISTED:
        lines.append(f"  ... and {len(listed) - MOST_LISTED} more")
    lines += [f"  ! {warning}" for warning in preview.reading.warnings]
    return "\n".join(lines)


def _count(preview: Preview) -> str:
    kept = preview.count("edited", "taken", "left_out")
    return (
        f"{preview.count('new')} new, {preview.count('changed')} changed, "
        f"{preview.count('removed')} removed, {preview.count('unchanged')} unchanged, {kept} kept"
    )


def _summarise(preview: Preview) -> dict[str, object]:
    return {
        "location": preview.reading.location,
        "kind": preview.reading.kind,
        "items": [{"state": item.state, **asdict(item.entry)} for item in preview.items],
        "warnings": preview.reading.warnings,
    }


def _describe_saved(one: Imported) -> str:
    return (
        f"{one.location}: {one.added} added, {one.updated} updated, {one.removed} removed, "
        f"{one.unchanged} unchanged, {one.kept} kept."
    )


def refresh_sources(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="An address or id; all pages and sites by default."),
    ] = None,
    *,
    tenant: Tenant,
    as_json: AsJson = False,
) -> None:
    """Take what has changed on pages and websites.

    Entries whose page is gone are removed. What a person has edited stays.
    """
    hosts = configuration.load().outbound_private_hosts

    async def work(operators: Database) -> list[Refreshed]:
        tenant_id = await find_tenant_id(operators, tenant)
        if source is not None:
            chosen = [await sources.find_source(operators, tenant_id, source)]
        else:
            listed = await sources.list_sources(operators, tenant_id)
            chosen = [one for one in listed if one.kind != "file"]
        done = []
        for one in chosen:
            with _count_pages(one.location) as count:
                done.append(await refresh.refresh(operators, tenant_id, one, hosts, count))
        return done

    done = with_operators(work)
    text = "\n".join(map(_describe_refreshed, done)) or "There are no pages or sites to refresh."
    show([asdict(one) for one in done], as_json=as_json, text=text)
    failed = [one for one in done if one.error]
    if failed:
        raise TenantError(f"{len(failed)} of {len(done)} sources could not be refreshed")


def _describe_refreshed(one: Refreshed) -> str:
    if one.imported is None:
        return one.error
    if not one.imported.is_change:
        return f"{one.location}: nothing has changed."
    return "\n".join([_describe_saved(one.imported), *(f"  ! {line}" for line in one.warnings)])


def list_sources(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """List what was imported: files, pages, websites."""

    async def work(operators: Database) -> list[Source]:
        return await sources.list_sources(operators, await find_tenant_id(operators, tenant))

    found = with_operators(work)
    lines = [
        f"{one.id}  {one.kind}  {one.refreshed_at:%Y-%m-%d}  {one.entries:>5}  {one.location}"
        for one in found
    ]
    show(found, as_json=as_json, text="\n".join(lines) or "No sources yet.")


def remove_source(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Its location or id.")],
    tenant: Tenant,
    *,
    as_json: AsJson = False,
) -> None:
    """Remove a source with its entries. Entries that a person has edited stay."""

    async def work(operators: Database) -> int:
        tenant_id = await find_tenant_id(operators, tenant)
        return await sources.remove_source(operators, tenant_id, source)

    removed = with_operators(work)
    show(
        {"removed": removed},
        as_json=as_json,
        text=f"Removed {source} with {removed} entries.",
    )
