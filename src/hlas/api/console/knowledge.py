"""A tenant's questions and answers, and a form to try out what a visitor would get."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from fastapi import Response
from pydantic import ValidationError

from hlas import errors
from hlas.agent import Answer, agent_settings
from hlas.agent.knowledge import Finding, compose, look_up
from hlas.agent.questions import find_fallback
from hlas.api.admin.knowledge import NewEntry, answer_export
from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    Signed,
    Visit,
    attempt,
    explain,
    go,
    parse_id,
    router,
)
from hlas.api.console.agent import find_language
from hlas.knowledge import entries, language
from hlas.knowledge.entries import LONGEST_SEARCH, Entry, Kind, StoredEntry
from hlas.knowledge.files import Format
from hlas.knowledge.imports import sources
from hlas.knowledge.imports.reading import SUFFIXES
from hlas.knowledge.imports.sources import Imported
from hlas.services import Services
from hlas.tenants.tenants import Tenant

PAGE = 50
LONGEST_QUESTION_TRIED = 500
TRY_SECONDS = 5.0

Problems = dict[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are shown."""

    find: str = ""
    kind: Kind | None = None
    source: UUID | None = None
    after: UUID | None = None

    @classmethod
    def read(cls, find: str, kind: str, source: str, after: str) -> Self:
        """Values that are not valid are ignored."""
        chosen: Kind | None = None
        if kind in {"answer", "passage"}:
            chosen = "answer" if kind == "answer" else "passage"
        return cls(clean(find, LONGEST_SEARCH), chosen, parse_id(source), parse_id(after))

    @property
    def fields(self) -> dict[str, str]:
        """The values of the search form."""
        given = {"find": self.find, "kind": self.kind or "", "source": str(self.source or "")}
        return {name: value for name, value in given.items() if value}


EVERYTHING = Wanted()


@dataclass(frozen=True, slots=True)
class Trial:
    """What a visitor would get for a question, and why."""

    asked: str
    text: str
    answer: Answer
    finding: Finding


@router.get("/tenants/{slug}/knowledge")
async def list_entries(
    visit: Signed,
    tenant: PathTenant,
    find: str = "",
    kind: str = "",
    source: str = "",
    after: str = "",
    ask: str = "",
) -> Response:
    wanted = Wanted.read(find, kind, source, after)
    return await list_page(visit, tenant, wanted=wanted, ask=clean(ask, LONGEST_QUESTION_TRIED))


def clean(text: str, longest: int) -> str:
    return text.replace("\0", "").strip()[:longest]


async def list_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    *,
    wanted: Wanted = EVERYTHING,
    ask: str = "",
    form: Form | None = None,
    problems: Problems | None = None,
    note: str = "",
    outcome: Sequence[Imported] = (),
) -> Response:
    """The page of a tenant's knowledge; `form` is an entry that is not saved yet."""
    shown, following = await entries.page_entries(
        visit.database,
        tenant.id,
        wanted.after,
        PAGE,
        search=wanted.find,
        kind=wanted.kind,
        source_id=wanted.source,
    )
    listed = await sources.list_sources(visit.database, tenant.id)
    settings = await agent_settings.read(visit.database, tenant.id)
    return visit.page(
        "knowledge.html",
        status,
        tenant=tenant,
        entries=shown,
        following=following,
        counts=await entries.count_entries(visit.database, tenant.id),
        sources=listed,
        places={one.id: one.location for one in listed},
        wanted=wanted.fields,
        is_first=wanted.after is None,
        ask=ask,
        trial=await _try_out(visit, tenant, ask) if ask else None,
        has_model=bool(settings.models),
        form=form or {},
        problems=problems or {},
        note=note,
        outcome=outcome,
        suffixes=SUFFIXES,
    )


async def _try_out(visit: Visit, tenant: Tenant, asked: str) -> Trial | None:
    """Nothing if the knowledge cannot be searched in time."""
    services: Services = visit.request.app.state.services
    chosen = language.detect(asked) or find_language(tenant)
    with suppress(TimeoutError, errors.Unavailable):
        async with asyncio.timeout(TRY_SECONDS):
            finding = await look_up(services.agent.means.ranker, str(tenant.id), asked, chosen)
        answer = compose([finding], chosen)
        return Trial(asked, answer.text or find_fallback(tenant, chosen), answer, finding)
    return None


def read_entry_form(form: Form) -> Entry:
    keywords = [word.strip() for word in form.get("keywords", "").split(",")]
    return NewEntry.model_validate(
        {
            "question": form.get("question", ""),
            "answer": form.get("answer", ""),
            "keywords": [word for word in keywords if word],
            "language": form.get("language") or None,
            "kind": form.get("kind") or "answer",
            "wordings": split_lines(form.get("wordings", "")),
            "url": form.get("url", ""),
        }
    ).entry()


def split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


@router.post("/tenants/{slug}/knowledge")
async def add_entry(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    try:
        entry = read_entry_form(form)
    except ValidationError as error:
        return await list_page(visit, tenant, 422, form=form, problems=explain(error))
    problem = await attempt(entries.add(visit.database, tenant.id, entry, visit.change))
    if problem:
        return await list_page(visit, tenant, 409, form=form, problems={"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "added")


@router.get("/tenants/{slug}/knowledge/export")
async def export_entries(visit: Signed, tenant: PathTenant, form: Format = "md") -> Response:
    return await answer_export(visit, tenant, form)


@router.get("/tenants/{slug}/knowledge/{entry_id:uuid}")
async def read_entry(visit: Signed, tenant: PathTenant, entry_id: UUID) -> Response:
    entry = await entries.find_entry(visit.database, tenant.id, entry_id)
    return await _entry_page(visit, tenant, entry)


async def _entry_page(
    visit: Visit,
    tenant: Tenant,
    entry: StoredEntry,
    status: int = 200,
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    shown = {
        "question": entry.question,
        "answer": entry.answer,
        "keywords": ", ".join(entry.keywords),
        "language": entry.language or "",
        "kind": entry.kind,
        "wordings": "\n".join(entry.wordings),
        "url": entry.url,
    }
    listed = await sources.list_sources(visit.database, tenant.id)
    return visit.page(
        "entry.html",
        status,
        tenant=tenant,
        entry=entry,
        source=next((one for one in listed if one.id == entry.source_id), None),
        revision=entry.revision,
        form=form or shown,
        problems=problems or {},
    )


@router.post("/tenants/{slug}/knowledge/{entry_id:uuid}")
async def change_entry(visit: Signed, tenant: PathTenant, entry_id: UUID, form: Sent) -> Response:
    stored = await entries.find_entry(visit.database, tenant.id, entry_id)
    try:
        entry = read_entry_form(form)
    except ValidationError as error:
        return await _entry_page(visit, tenant, stored, 422, form, explain(error))
    expected = frozenset({form.get("revision", "")})
    problem = await attempt(
        entries.update(visit.database, tenant.id, entry_id, entry, expected, visit.change)
    )
    if problem:
        return await _entry_page(visit, tenant, stored, 409, form, {"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "saved")


@router.post("/tenants/{slug}/knowledge/{entry_id:uuid}/remove")
async def remove_entry(visit: Signed, tenant: PathTenant, entry_id: UUID) -> Response:
    await entries.remove_entry(visit.database, tenant.id, entry_id, change=visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "removed")
