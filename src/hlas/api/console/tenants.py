"""Tenants: listed, added, set up, removed."""

import re
from typing import Any
from uuid import UUID

from fastapi import Request, Response
from pydantic import ValidationError

from hlas.api.admin.tenants import NewDomain
from hlas.api.console.access import (
    CONSOLE,
    Form,
    Operator,
    Sent,
    Signed,
    Tenant,
    Visit,
    attempt,
    complaints,
    go,
    number,
    router,
)
from hlas.limits.rules import OVERRIDES
from hlas.services import Services
from hlas.tenants import revisions, tenants, visitor_keys
from hlas.tenants.tenants import OPERATORS_ONLY, SLUG, NewTenant, TenantChanges
from hlas.web import assets

PAGE = 100


@router.get("/tenants")
async def list_tenants(visit: Signed, after: str = "") -> Response:
    return await _list_page(visit, after=after)


async def _list_page(
    visit: Visit, status: int = 200, *, after: str = "", form: Form | None = None, **values: Any
) -> Response:
    start = after if re.fullmatch(SLUG, after) else None
    found = await tenants.listed(visit.database, after=start, limit=PAGE + 1)
    shown = found[:PAGE]
    return visit.page(
        "tenants.html",
        status,
        tenants=shown,
        following=shown[-1]["slug"] if len(found) > PAGE else None,
        form=form or {},
        problems=values.get("problems", {}),
    )


@router.post("/tenants")
async def add_tenant(visit: Operator, form: Sent) -> Response:
    try:
        new = NewTenant.model_validate(
            {
                "name": form.get("name", ""),
                "slug": form.get("slug", ""),
                "domains": form.get("domains", "").split(),
            }
        )
    except ValidationError as error:
        return await _list_page(visit, 422, form=form, problems=complaints(error))
    adding = tenants.add(visit.database, new.name, new.slug, new.domains, change=visit.change)
    problem = await attempt(adding)
    if problem:
        return await _list_page(visit, 409, form=form, problems={"": problem})
    return go(f"{CONSOLE}/tenants/{new.slug}", "added")


@router.get("/tenants/{slug}")
async def read_tenant(visit: Signed, tenant: Tenant) -> Response:
    return await tenant_page(visit, tenant)


async def tenant_page(
    visit: Visit, tenant: dict[str, Any], status: int = 200, form: Form | None = None, **values: Any
) -> Response:
    request = visit.request
    return visit.page(
        "tenant.html",
        status,
        tenant=tenant,
        revision=revisions.tag(tenant),
        form=form or _fields(tenant),
        problems=values.get("problems", {}),
        limits=_limits(request, tenant),
        keys=await visitor_keys.listed(visit.database, UUID(tenant["id"])),
        added=values.get("added"),
        embed=assets.embed_line(str(request.base_url)),
    )


def _fields(tenant: dict[str, Any]) -> Form:
    return {
        "name": tenant["name"],
        "fallback_text": tenant["fallback_text"] or "",
        "retention_days": str(tenant["retention_days"] or ""),
        "identity_mode": tenant["identity_mode"],
        "is_active": "on" if tenant["is_active"] else "",
        **tenant["limits"],
    }


def _limits(request: Request, tenant: dict[str, Any]) -> list[dict[str, str]]:
    services: Services = request.app.state.services
    names = {
        "session_tenant": "Sessions of the tenant",
        "messages_tenant": "Messages of the tenant",
        "messages_conversation": "Messages of a conversation",
    }
    return [
        {
            "name": name,
            "title": names.get(name, name),
            "value": tenant["limits"].get(name, ""),
            "default": str(getattr(services.settings, f"rate_limit_{name}") or "off"),
        }
        for name in OVERRIDES
    ]


@router.post("/tenants/{slug}")
async def change_tenant(visit: Signed, tenant: Tenant, form: Sent) -> Response:
    """Name, answer of last resort, retention; for operators also limits and the switch."""
    days = form.get("retention_days", "").strip()
    given: dict[str, Any] = {
        "name": form.get("name", ""),
        "fallback_text": form.get("fallback_text", "").strip() or None,
        "retention_days": number(days) if days else None,
    }
    if "identity_mode" in form:
        given["identity_mode"] = form["identity_mode"]
    if visit.administrator.is_operator:
        given["is_active"] = "is_active" in form
        given["limits"] = {name: form[name].strip() for name in OVERRIDES if form.get(name)}
    try:
        changes = TenantChanges.model_validate(given)
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, form, problems=complaints(error))
    if changes.model_fields_set & OPERATORS_ONLY:
        visit.require_operator()
    return await save(visit, tenant, changes.given(), form, f"{CONSOLE}/tenants/{tenant['slug']}")


async def save(
    visit: Visit, tenant: dict[str, Any], changes: dict[str, Any], form: Form, back: str
) -> Response:
    """Change a tenant, unless somebody else has done so since the page was loaded."""
    expected = frozenset({form.get("revision", "")})
    await tenants.update(visit.database, tenant["slug"], changes, expected, visit.change)
    return go(back, "saved")


@router.post("/tenants/{slug}/domains")
async def add_domain(visit: Operator, tenant: Tenant, form: Sent) -> Response:
    slug = tenant["slug"]
    try:
        new = NewDomain(domain=form.get("domain", "").strip())
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, problems=complaints(error))
    adding = tenants.add_domain(visit.database, slug, new.domain, visit.change)
    problem = await attempt(adding)
    if problem:
        return await tenant_page(visit, tenant, 409, problems={"domain": problem})
    return go(f"{CONSOLE}/tenants/{slug}", "added")


@router.post("/tenants/{slug}/domains/remove")
async def remove_domain(visit: Operator, tenant: Tenant, form: Sent) -> Response:
    slug = tenant["slug"]
    await tenants.remove_domain(visit.database, slug, form.get("domain", ""), visit.change)
    return go(f"{CONSOLE}/tenants/{slug}", "removed")


@router.post("/tenants/{slug}/sign-out")
async def sign_visitors_out(visit: Signed, tenant: Tenant) -> Response:
    await tenants.sign_out(visit.database, tenant["slug"], visit.change)
    return go(f"{CONSOLE}/tenants/{tenant['slug']}", "signed-out")


@router.post("/tenants/{slug}/remove")
async def remove_tenant(visit: Operator, tenant: Tenant, form: Sent) -> Response:
    """With all its conversations; its slug has to be written out."""
    if form.get("slug") != tenant["slug"]:
        problems = {"slug": "Write the slug exactly to remove it."}
        return await tenant_page(visit, tenant, 422, problems=problems)
    await tenants.remove(visit.database, tenant["slug"], visit.change)
    return go(f"{CONSOLE}/tenants", "removed")
