"""A tenant's questions and answers, and a form to try out what a visitor would get."""

from uuid import UUID

from fastapi import Response
from pydantic import ValidationError

from hlas.agent.knowledge import look_up
from hlas.api.admin.knowledge import NewEntry
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
from hlas.knowledge import entries, language
from hlas.knowledge.entries import Entry, StoredEntry
from hlas.services import Services
from hlas.tenants.tenants import Tenant

PAGE = 50
LONGEST_QUESTION_TRIED = 500


@router.get("/tenants/{slug}/knowledge")
async def list_entries(
    visit: Signed, tenant: PathTenant, after: str = "", ask: str = ""
) -> Response:
    return await _list_page(visit, tenant, after=after, ask=ask.strip()[:LONGEST_QUESTION_TRIED])


async def _list_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    *,
    after: str = "",
    ask: str = "",
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    shown, following = await entries.page_entries(visit.database, tenant.id, parse_id(after), PAGE)
    finding = None
    if ask and "\0" not in ask:
        detected = language.detect(ask) or "en"
        services: Services = visit.request.app.state.services
        ranker = services.agent.means.ranker
        finding = await look_up(ranker, str(tenant.id), ask, detected)
    return visit.page(
        "knowledge.html",
        status,
        tenant=tenant,
        entries=shown,
        following=following,
        ask=ask,
        finding=finding,
        form=form or {},
        problems=problems or {},
    )


def _read_entry(form: Form) -> Entry:
    keywords = [word.strip() for word in form.get("keywords", "").split(",")]
    return NewEntry.model_validate(
        {
            "question": form.get("question", ""),
            "answer": form.get("answer", ""),
            "keywords": [word for word in keywords if word],
            "language": form.get("language") or None,
        }
    ).entry()


@router.post("/tenants/{slug}/knowledge")
async def add_entry(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    try:
        entry = _read_entry(form)
    except ValidationError as error:
        return await _list_page(visit, tenant, 422, form=form, problems=explain(error))
    problem = await attempt(entries.add(visit.database, tenant.id, entry, visit.change))
    if problem:
        return await _list_page(visit, tenant, 409, form=form, problems={"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "added")


@router.get("/tenants/{slug}/knowledge/{entry_id}")
async def read_entry(visit: Signed, tenant: PathTenant, entry_id: UUID) -> Response:
    entry = await entries.find_entry(visit.database, tenant.id, entry_id)
    return _entry_page(visit, tenant, entry)


def _entry_page(
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
    }
    return visit.page(
        "entry.html",
        status,
        tenant=tenant,
        entry=entry,
        revision=entry.revision,
        form=form or shown,
        problems=problems or {},
    )


@router.post("/tenants/{slug}/knowledge/{entry_id}")
async def change_entry(visit: Signed, tenant: PathTenant, entry_id: UUID, form: Sent) -> Response:
    stored = await entries.find_entry(visit.database, tenant.id, entry_id)
    try:
        entry = _read_entry(form)
    except ValidationError as error:
        return _entry_page(visit, tenant, stored, 422, form, explain(error))
    expected = frozenset({form.get("revision", "")})
    problem = await attempt(
        entries.update(visit.database, tenant.id, entry_id, entry, expected, visit.change)
    )
    if problem:
        return _entry_page(visit, tenant, stored, 409, form, {"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "saved")


@router.post("/tenants/{slug}/knowledge/{entry_id}/remove")
async def remove_entry(visit: Signed, tenant: PathTenant, entry_id: UUID) -> Response:
    await entries.remove_entry(visit.database, tenant.id, entry_id, change=visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/knowledge", "removed")
