"""Imports into a tenant's knowledge: files and addresses are read, shown, then saved."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Self
from uuid import UUID

import orjson
from fastapi import Response

from hlas import errors
from hlas.api.admin.imports import LONGEST_NAME, make_file_job, read_source
from hlas.api.console import progress, seals
from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    SentFiles,
    Signed,
    Visit,
    go,
    router,
)
from hlas.api.console.knowledge import clean, list_page
from hlas.api.console.progress import Tell
from hlas.http.body import LARGEST_FILE, LARGEST_UPLOAD
from hlas.http.multipart import File
from hlas.knowledge.entries import LONGEST_URL
from hlas.knowledge.imports import refresh, sources
from hlas.knowledge.imports.preview import Item, Preview, State
from hlas.knowledge.imports.reading import SHORT_CRAWL, Job, Progress, Reading, SourceKind
from hlas.knowledge.imports.sources import Imported, Part
from hlas.tenants.tenants import Tenant

MOST_FILES = 20
# The limit for all files of a form together.
SECONDS = 120.0
# A longer preview shows so many entries to choose from; of the others the usual ones are saved.
MOST_SHOWN = 500
# The form that saves has other fields, too.
LARGEST_SEALED = LARGEST_UPLOAD - 2**20

# In the order in which they are shown.
STATES: dict[State, str] = {
    "new": "New",
    "changed": "Changed",
    "removed": "No longer in the source",
    "edited": "Edited here, kept",
    "taken": "Same question in another entry, kept",
    "left_out": "Removed or skipped before",
    "unchanged": "Unchanged",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that could not be read, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What was read for a form, until it is saved or discarded."""

    readings: tuple[Reading, ...]
    refusals: tuple[Refusal, ...] = ()

    def seal(self, visit: Visit, tenant: Tenant, shown: Sequence["Shown"]) -> str:
        """For the browser, which brings it back to be saved."""
        held = {
            "tenant": str(tenant.id),
            "readings": [one.to_json() for one in self.readings],
            "refusals": [asdict(one) for one in self.refusals],
            "keys": [[item.key for item in one.open] for one in shown],
            "rest": [one.rest for one in shown],
        }
        return seals.seal(visit.secret, orjson.dumps(held))


@dataclass(frozen=True, slots=True)
class Shown:
    """A source in the preview."""

    preview: Preview
    # From which somebody can choose, with their numbers in the form.
    open: tuple[Item, ...]
    # What is saved beyond those.
    rest: tuple[str, ...]
    chosen: frozenset[str]

    @classmethod
    def of(cls, preview: Preview, room: int, chosen: frozenset[str] | None) -> Self:
        order = list(STATES)
        items = sorted(
            (item for item in preview.items if item.is_open), key=lambda one: order.index(one.state)
        )
        usual = preview.choose_default()
        rest = tuple(item.key for item in items[room:] if item.key in usual)
        return cls(preview, tuple(items[:room]), rest, usual if chosen is None else chosen)

    @property
    def counts(self) -> list[tuple[str, State, int]]:
        counted = Counter(item.state for item in self.preview.items)
        return [(title, state, counted[state]) for state, title in STATES.items() if counted[state]]

    def list_items(self, state: State) -> list[tuple[int, Item]]:
        return [(n, item) for n, item in enumerate(self.open) if item.state == state]


@router.post("/tenants/{slug}/knowledge/preview")
async def preview_import(
    visit: Signed, tenant: PathTenant, form: Sent, files: SentFiles
) -> Response:
    """Read what was given, and show what saving it would change. Nothing is saved."""
    address = clean(form.get("address", ""), LONGEST_URL)
    if address and "://" not in address:
        address = f"https://{address}"
    if not address and not files:
        return await _refuse(visit, tenant, form, "Choose a document or write an address.")
    if len(files) > MOST_FILES:
        return await _refuse(visit, tenant, form, f"Choose at most {MOST_FILES} documents.")

    kind: SourceKind = "site" if form.get("reach") == "site" else "page"
    job = Job(kind, address, None, SHORT_CRAWL) if address else None

    async def read(tell: Tell) -> str:
        batch = await _read_all(visit, tenant, files, job, tell)
        return visit.render("import-preview.html", **await _show(visit, tenant, batch))

    return progress.stream(visit, tenant, "Import", read)


async def _refuse(visit: Visit, tenant: Tenant, form: Form, problem: str) -> Response:
    return await list_page(visit, tenant, 422, form=form, problems={"import": problem})


async def _read_all(
    visit: Visit, tenant: Tenant, files: Sequence[File], job: Job | None, tell: Tell
) -> Batch:
    """One after another: the files, then the address."""
    readings: dict[str, Reading] = {}
    refusals: list[Refusal] = []
    ends = asyncio.get_running_loop().time() + SECONDS

    async def take(location: str, make: Callable[[], Job], data: bytes = b"") -> None:
        tell(f"Reading {location}")
        try:
            async with asyncio.timeout_at(ends):
                read = await read_source(
                    visit.request, tenant, make(), data, count_pages(location, tell)
                )
        except TimeoutError:
            refusals.append(
                Refusal(location, "There was no time to read it. Import it separately.")
            )
        except errors.HlasError as error:
            refusals.append(Refusal(location, explain(location, error)))
        else:
            readings[read.location] = read

    for file in files:
        name = file.name[-LONGEST_NAME:]
        if len(file.data) > LARGEST_FILE:
            refusals.append(Refusal(name, "It is larger than 10 MB."))
        else:
            await take(name, partial(make_file_job, name, None), file.data)
    if job:
        await take(job.location, lambda: job)
    return Batch(tuple(readings.values()), tuple(refusals))


def count_pages(location: str, tell: Tell) -> Progress:
    """Report each page that was read."""
    return lambda pages: tell(f"Reading {location}: page {pages}")


def explain(location: str, error: errors.HlasError) -> str:
    """What is wrong, as a sentence without the name of what it is about."""
    line = error.line if isinstance(error, errors.UnreadableSource) else error.message
    line = line.removeprefix(f"{location}: ").replace("`", '"')
    return f"{line[:1].upper()}{line[1:]}{'' if line.endswith('.') else '.'}"


async def _show(
    visit: Visit,
    tenant: Tenant,
    batch: Batch,
    chosen: Sequence[frozenset[str]] | None = None,
    problem: str = "",
) -> dict[str, object]:
    """What the preview shows; `chosen` is what somebody has taken in it before."""
    found = await sources.preview(visit.database, tenant.id, batch.readings)
    shown: list[Shown] = []
    for number, one in enumerate(found):
        room = MOST_SHOWN - sum(len(other.open) for other in shown)
        shown.append(Shown.of(one, room, chosen[number] if chosen else None))
    # Compressing megabytes takes a moment.
    sealed = await asyncio.to_thread(batch.seal, visit, tenant, shown)
    if len(sealed) > LARGEST_SEALED:
        sealed, problem = "", "This is too much at once. Import fewer documents."
    return {
        "tenant": tenant,
        "shown": shown,
        "refusals": batch.refusals,
        "sealed": sealed,
        "problem": problem,
        "can_save": bool(sealed) and any(one.open for one in shown),
    }


@router.post("/tenants/{slug}/knowledge/import")
async def save_import(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Save what the preview has shown and somebody has chosen: all of it or nothing."""
    data = await asyncio.to_thread(seals.unseal, visit.secret, form.get("sealed", ""))
    held = orjson.loads(data)
    if held["tenant"] != str(tenant.id):
        raise errors.FormRefused
    readings = tuple(map(Reading.from_json, held["readings"]))
    chosen = [
        frozenset((*_choose(form, number, keys), *rest))
        for number, (keys, rest) in enumerate(zip(held["keys"], held["rest"], strict=True))
    ]
    parts = [Part(one, keys) for one, keys in zip(readings, chosen, strict=True)]
    try:
        imported = await sources.save(visit.database, tenant.id, parts, visit.change)
    except errors.TenantError as error:
        batch = Batch(readings, tuple(Refusal(**one) for one in held["refusals"]))
        shown = await _show(visit, tenant, batch, chosen, explain("", error))
        return visit.page("import.html", error.status, policy=None, **shown)
    return await list_page(visit, tenant, outcome=imported)


def _choose(form: Form, number: int, keys: Sequence[str]) -> list[str]:
    return [key for place, key in enumerate(keys) if f"take.{number}.{place}" in form]


@router.post("/tenants/{slug}/knowledge/sources/{source_id}/refresh")
async def refresh_source(visit: Signed, tenant: PathTenant, source_id: UUID) -> Response:
    """Fetch a page or a website again, and take what has changed."""
    source = await sources.find_source(visit.database, tenant.id, str(source_id))

    async def work(tell: Tell) -> str:
        tell(f"Reading {source.location}")
        imported: list[Imported] = []
        warnings: tuple[str, ...] = ()
        refusals: list[Refusal] = []
        try:
            job = await refresh.make_job(visit.database, tenant.id, source, SHORT_CRAWL)
            read = await read_source(
                visit.request, tenant, job, on_page=count_pages(source.location, tell)
            )
            imported.append(await refresh.take(visit.database, tenant.id, read, visit.change))
            warnings = read.warnings
        except errors.HlasError as error:
            refusals.append(Refusal(source.location, explain(source.location, error)))
        return visit.render(
            "import-outcome.html",
            tenant=tenant,
            outcome=imported,
            warnings=warnings,
            refusals=refusals,
        )

    return progress.stream(visit, tenant, "Refresh", work)


@router.post("/tenants/{slug}/knowledge/sources/{source_id}/remove")
async def remove_source(visit: Signed, tenant: PathTenant, source_id: UUID) -> Response:
    """Remove a source with its entries; those that a person has changed stay."""
    await sources.remove_source(visit.database, tenant.id, str(source_id), visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "removed")
