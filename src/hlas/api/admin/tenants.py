"""Tenants, their domains, looks and limits."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from hlas.api.admin.access import (
    Admin,
    IfMatch,
    Operator,
    Page,
    Parameters,
    Tenant,
    answer,
    content,
    page_of,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.tenants import tenants
from hlas.tenants.tenants import (
    OPERATORS_ONLY,
    SLUG,
    Domain,
    IdentityMode,
    NewTenant,
    TenantChanges,
)


class Me(BaseModel):
    name: str
    role: str
    prefix: str
    tenant: str | None = Field(description="the slug of the only tenant this key reaches")


class TenantAnswer(BaseModel):
    id: str
    slug: str
    name: str
    is_active: bool
    domains: list[str]
    ui_config: dict[str, Any]
    fallback_text: str | None
    limits: dict[str, str]
    retention_days: int | None
    identity_mode: IdentityMode
    created_at: datetime


class Tenants(BaseModel):
    tenants: list[TenantAnswer]
    next_cursor: str | None


class TenantsPage(Page):
    cursor: str | None = Field(None, pattern=SLUG, description="a `next_cursor`")


class NewDomain(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    domain: Domain = Field(description="example.com, *.example.com, localhost:3000")


class Domains(BaseModel):
    domains: list[str]


class DomainQuery(Parameters):
    domain: Domain


@router.get("/me", response_model=Me, summary="Whose key this is")
async def read_me(access: Admin) -> Response:
    who = access.administrator
    return answer(
        {
            "name": who.name,
            "role": who.role,
            "prefix": f"hlas_{who.prefix}",
            "tenant": who.tenant,
        }
    )


@router.get("/tenants", response_model=Tenants, summary="List tenants", responses=problems(422))
async def list_tenants(access: Admin, page: Annotated[TenantsPage, Query()]) -> Response:
    """By slug; a tenant's own key sees that tenant alone."""
    found = await tenants.listed(access.database, after=page.cursor, limit=page.limit + 1)
    more = len(found) > page.limit
    return page_of("tenants", found[: page.limit], found[page.limit - 1]["slug"] if more else None)


@router.post(
    "/tenants",
    status_code=201,
    response_model=TenantAnswer,
    summary="Add a tenant (operators)",
    responses=problems(408, 409, 413, 415, 422),
    openapi_extra=takes(NewTenant),
)
async def add_tenant(
    access: Operator, new: Annotated[NewTenant, Depends(content(NewTenant))]
) -> Response:
    added = await tenants.add(
        access.database,
        new.name,
        new.slug,
        new.domains,
        ui_config=new.ui_config.model_dump(exclude_none=True),
        fallback_text=new.fallback_text,
        change=access.change,
    )
    return answer(added, 201, tagged=True, headers={"Location": f"/admin/tenants/{new.slug}"})


@router.get(
    "/tenants/{slug}",
    response_model=TenantAnswer,
    summary="Read a tenant",
    responses=problems(404, 422),
)
async def read_tenant(tenant: Tenant) -> Response:
    return answer(tenant, tagged=True)


@router.patch(
    "/tenants/{slug}",
    response_model=TenantAnswer,
    summary="Change a tenant",
    responses=problems(404, 408, 412, 413, 415, 422, 428),
    openapi_extra=takes(TenantChanges),
)
async def update_tenant(
    access: Admin,
    tenant: Tenant,
    expected: IfMatch,
    changes: Annotated[TenantChanges, Depends(content(TenantChanges))],
) -> Response:
    """What is left out stays; `ui_config` and `limits` are replaced as a whole."""
    if changes.model_fields_set & OPERATORS_ONLY:
        access.require_operator()
    changed = await tenants.update(
        access.database, tenant["slug"], changes.given(), expected, access.change
    )
    return answer(changed, tagged=True)


@router.delete(
    "/tenants/{slug}",
    status_code=204,
    summary="Delete a tenant with all its conversations (operators)",
    responses=problems(404, 412, 413, 415, 422, 428),
)
async def remove_tenant(access: Operator, tenant: Tenant, expected: IfMatch) -> Response:
    await tenants.remove(access.database, tenant["slug"], access.change, expected)
    return Response(status_code=204)


@router.post(
    "/tenants/{slug}/sign-out",
    status_code=204,
    summary="End every visitor's session of a tenant",
    responses=problems(404, 413, 415, 422),
)
async def sign_out(access: Admin, tenant: Tenant) -> Response:
    await tenants.sign_out(access.database, tenant["slug"], access.change)
    return Response(status_code=204)


@router.get(
    "/tenants/{slug}/domains",
    response_model=Domains,
    summary="List a tenant's domains",
    responses=problems(404, 422),
)
async def list_domains(tenant: Tenant) -> Response:
    return answer({"domains": tenant["domains"]})


@router.post(
    "/tenants/{slug}/domains",
    status_code=201,
    response_model=NewDomain,
    summary="Allow a domain (operators)",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewDomain),
)
async def add_domain(
    access: Operator, tenant: Tenant, new: Annotated[NewDomain, Depends(content(NewDomain))]
) -> Response:
    """Answers with the domain as it is kept."""
    added = await tenants.add_domain(access.database, tenant["slug"], new.domain, access.change)
    return answer({"domain": added}, 201)


@router.delete(
    "/tenants/{slug}/domains",
    status_code=204,
    summary="Stop allowing a domain (operators)",
    responses=problems(404, 413, 415, 422),
)
async def remove_domain(
    access: Operator, tenant: Tenant, query: Annotated[DomainQuery, Query()]
) -> Response:
    await tenants.remove_domain(access.database, tenant["slug"], query.domain, access.change)
    return Response(status_code=204)
