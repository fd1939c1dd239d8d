"""A tenant's questions and answers, and which of them a visitor's question would get."""

from typing import Any
from uuid import UUID

from fastapi import Response
from pydantic import ValidationError

from hlas.agent.knowledge import THRESHOLD
from hlas.api.admin.knowledge import NewEntry
from hlas.api.console.access import (
    CONSOLE,
    Form,
    Sent,
    Signed,
    Tenant,
    Visit,
    attempt,
    complaints,
    go,
    identifier,
    router,
)
from hlas.knowledge import entries, language
from hlas.tenants import revisions

PAGE = 50
LONGEST_QUESTION_TRIED = 500
WORTH_SHOWING = 0.01


@router.get("/tenants/{slug}/knowledge")
async def list_entries(visit: Signed, tenant: Tenant, after: str = "", ask: str = "") -> Response:
    return await _list_page(visit, tenant, after=after, ask=ask.strip()[:LONGEST_QUESTION_TRIED])


async def _list_page(
    visit: Visit,
    tenant: dict[str, Any],
    status: int = 200,
    *,
    after: str = "",
    ask: str = "",
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    tenant_id = UUID(tenant["id"])
    found = await entries.paged(visit.database, tenant_id, identifier(after), PAGE + 1)
    shown = found[:PAGE]
    matches = []
    if ask and "\0" not in ask:
        spoken = language.detect(ask) or "en"
        ranked = await entries.rank(visit.database, tenant["id"], ask, spoken)
        matches = [match for match in ranked if match.confidence >= WORTH_SHOWING]
    return visit.page(
        "knowledge.html",
        status,
        tenant=tenant,
        entries=shown,
        following=shown[-1]["id"] if len(found) > PAGE else None,
        ask=ask,
        matches=matches,
        threshold=THRESHOLD,
        form=form or {},
        problems=problems or {},
    )


def _entry(form: Form) -> entries.Entry:
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
async def add_entry(visit: Signed, tenant: Tenant, form: Sent) -> Response:
    try:
        entry = _entry(form)
    except ValidationError as error:
        return await _list_page(visit, tenant, 422, form=form, problems=complaints(error))
    problem = await attempt(entries.add(visit.database, UUID(tenant["id"]), entry, visit.change))
    if problem:
        return await _list_page(visit, tenant, 409, form=form, problems={"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant['slug']}/knowledge", "added")


@router.get("/tenants/{slug}/knowledge/{entry_id}")
async def entry_page(visit: Signed, tenant: Tenant, entry_id: UUID) -> Response:
    entry = await entries.by_id(visit.database, UUID(tenant["id"]), entry_id)
    return _page(visit, tenant, entry)


def _page(
    visit: Visit,
    tenant: dict[str, Any],
    entry: dict[str, Any],
    status: int = 200,
    form: Form | None = None,
    problems: dict[str, str] | None = None,
) -> Response:
    shown = {
        "question": entry["question"],
        "answer": entry["answer"],
        "keywords": ", ".join(entry["keywords"]),
        "language": entry["language"] or "",
    }
    return visit.page(
        "entry.html",
        status,
        tenant=tenant,
        entry=entry,
        revision=revisions.tag(entry),
        form=form or shown,
        problems=problems or {},
    )


@router.post("/tenants/{slug}/knowledge/{entry_id}")
async def change_entry(visit: Signed, tenant: Tenant, entry_id: UUID, form: Sent) -> Response:
    tenant_id = UUID(tenant["id"])
    stored = await entries.by_id(visit.database, tenant_id, entry_id)
    try:
        entry = _entry(form)
    except ValidationError as error:
        return _page(visit, tenant, stored, 422, form, complaints(error))
    expected = frozenset({form.get("revision", "")})
    problem = await attempt(
        entries.update(visit.database, tenant_id, entry_id, entry, expected, visit.change)
    )
    if problem:
        return _page(visit, tenant, stored, 409, form, {"question": problem})
    return go(f"{CONSOLE}/tenants/{tenant['slug']}/knowledge", "saved")


@router.post("/tenants/{slug}/knowledge/{entry_id}/remove")
async def remove_entry(visit: Signed, tenant: Tenant, entry_id: UUID) -> Response:
    await entries.remove_one(visit.database, UUID(tenant["id"]), entry_id, change=visit.change)
    return go(f"{CONSOLE}/tenants/{tenant['slug']}/knowledge", "removed")
