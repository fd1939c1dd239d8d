"""Tenants: list, add, change and remove."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Response
from pydantic import ValidationError

from hlas.api.admin.tenants import NewDomain
from hlas.api.console.access import (
    CONSOLE,
    Form,
    Operator,
    PathTenant,
    Sent,
    Signed,
    Visit,
    attempt,
    explain,
    go,
    parse_number,
    router,
)
from hlas.knowledge.language import LANGUAGES
from hlas.limits import Limit
from hlas.limits.rules import OVERRIDES
from hlas.services import Services
from hlas.settings import Settings
from hlas.tenants import tenants, visitor_keys
from hlas.tenants.tenants import OPERATORS_ONLY, SLUG, NewTenant, Tenant, TenantChanges
from hlas.tenants.visitor_keys import AddedVisitorKey
from hlas.web import assets

PAGE = 100

Problems = dict[str, str]


@dataclass(frozen=True, slots=True)
class LimitField:
    """A limit in the form, with its default as the hint."""

    name: str
    title: str
    default: str


@router.get("/tenants")
async def list_tenants(visit: Signed, after: str = "") -> Response:
    return await _list_page(visit, after=after)


async def _list_page(
    visit: Visit,
    status: int = 200,
    *,
    after: str = "",
    form: Form | None = None,
    problems: Problems | None = None,
) -> Response:
    start = after if re.fullmatch(SLUG, after) else None
    found = await tenants.list_tenants(visit.database, after=start, limit=PAGE + 1)
    shown = found[:PAGE]
    return visit.page(
        "tenants.html",
        status,
        tenants=shown,
        following=shown[-1].slug if len(found) > PAGE else None,
        form=form or {},
        problems=problems or {},
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
        return await _list_page(visit, 422, form=form, problems=explain(error))
    adding = tenants.add(visit.database, new.name, new.slug, new.domains, change=visit.change)
    problem = await attempt(adding)
    if problem:
        return await _list_page(visit, 409, form=form, problems={"": problem})
    return go(f"{CONSOLE}/tenants/{new.slug}", "added")


@router.get("/tenants/{slug}")
async def read_tenant(visit: Signed, tenant: PathTenant) -> Response:
    return await tenant_page(visit, tenant)


async def tenant_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    form: Form | None = None,
    *,
    problems: Problems | None = None,
    added: AddedVisitorKey | None = None,
) -> Response:
    services: Services = visit.request.app.state.services
    return visit.page(
        "tenant.html",
        status,
        tenant=tenant,
        revision=tenant.revision,
        form=form or _fill_form(tenant),
        problems=problems or {},
        limits=_list_limits(services.settings),
        keys=await visitor_keys.list_keys(visit.database, tenant.id),
        added=added,
        embed=assets.embed_line(str(visit.request.base_url)),
    )


def _fill_form(tenant: Tenant) -> Form:
    return {
        "name": tenant.name,
        "fallback_text": tenant.fallback_text or "",
        **{f"fallback_texts.{code}": text for code, text in tenant.fallback_texts.items()},
        "retention_days": str(tenant.retention_days or ""),
        "identity_mode": tenant.identity_mode,
        "handler": tenant.handler,
        "is_active": "on" if tenant.is_active else "",
        **tenant.limits,
    }


def _list_limits(settings: Settings) -> list[LimitField]:
    limits: list[tuple[str, str, Limit | None]] = [
        ("session_tenant", "Sessions of the tenant", settings.rate_limit_session_tenant),
        ("messages_tenant", "Messages of the tenant", settings.rate_limit_messages_tenant),
        (
            "messages_conversation",
            "Messages of a conversation",
            settings.rate_limit_messages_conversation,
        ),
    ]
    return [LimitField(name, title, str(default or "off")) for name, title, default in limits]


@router.post("/tenants/{slug}")
async def change_tenant(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Change name, fallback answers and retention; operators also limits and the active state."""
    days = form.get("retention_days", "").strip()
    fallbacks = {code: form.get(f"fallback_texts.{code}", "").strip() for code in LANGUAGES}
    given: dict[str, object] = {
        "name": form.get("name", ""),
        "fallback_text": form.get("fallback_text", "").strip() or None,
        "fallback_texts": {code: text for code, text in fallbacks.items() if text},
        "retention_days": parse_number(days) if days else None,
    }
    given |= {name: form[name] for name in ("identity_mode", "handler") if name in form}
    if visit.administrator.is_operator:
        given["is_active"] = "is_active" in form
        given["limits"] = {name: form[name].strip() for name in OVERRIDES if form.get(name)}
    try:
        changes = TenantChanges.model_validate(given)
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, form, problems=explain(error))
    if changes.model_fields_set & OPERATORS_ONLY:
        visit.require_operator()
    return await save(
        visit, tenant, changes.list_changes(), form, f"{CONSOLE}/tenants/{tenant.slug}"
    )


async def save(
    visit: Visit, tenant: Tenant, changes: Mapping[str, object], form: Form, back: str
) -> Response:
    """Change a tenant, unless somebody else changed it since the page was loaded."""
    expected = frozenset({form.get("revision", "")})
    await tenants.update(visit.database, tenant.slug, changes, expected, visit.change)
    return go(back, "saved")


@router.post("/tenants/{slug}/domains")
async def add_domain(visit: Operator, tenant: PathTenant, form: Sent) -> Response:
    slug = tenant.slug
    try:
        new = NewDomain(domain=form.get("domain", "").strip())
    except ValidationError as error:
        return await tenant_page(visit, tenant, 422, problems=explain(error))
    adding = tenants.add_domain(visit.database, slug, new.domain, visit.change)
    problem = await attempt(adding)
    if problem:
        return await tenant_page(visit, tenant, 409, problems={"domain": problem})
    return go(f"{CONSOLE}/tenants/{slug}", "added")


@router.post("/tenants/{slug}/domains/remove")
async def remove_domain(visit: Operator, tenant: PathTenant, form: Sent) -> Response:
    slug = tenant.slug
    await tenants.remove_domain(visit.database, slug, form.get("domain", ""), visit.change)
    return go(f"{CONSOLE}/tenants/{slug}", "removed")


@router.post("/tenants/{slug}/sign-out")
async def sign_visitors_out(visit: Signed, tenant: PathTenant) -> Response:
    await tenants.sign_out(visit.database, tenant.slug, visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}", "signed-out")


@router.post("/tenants/{slug}/remove")
async def remove_tenant(visit: Operator, tenant: PathTenant, form: Sent) -> Response:
    """Remove a tenant with all its conversations; the user must type its slug."""
    if form.get("slug") != tenant.slug:
        problems = {"slug": "Type the slug exactly to remove the tenant."}
        return await tenant_page(visit, tenant, 422, problems=problems)
    await tenants.remove(visit.database, tenant.slug, visit.change)
    return go(f"{CONSOLE}/tenants", "removed")
