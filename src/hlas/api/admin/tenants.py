"""Tenants, their domains, looks and limits."""

from typing import Annotated

from fastapi import Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from hlas.api.admin.access import (
    Admin,
    IfMatch,
    Operator,
    Page,
    Parameters,
    PathTenant,
    answer,
    answer_page,
    read_body,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.tenants import tenants
from hlas.tenants.tenants import (
    OPERATORS_ONLY,
    SLUG,
    Domain,
    NewTenant,
    Tenant,
    TenantChanges,
)


class Me(BaseModel):
    name: str
    role: str
    prefix: str
    tenant: str | None = Field(description="the slug of the only tenant this key reaches")


class Tenants(BaseModel):
    tenants: list[Tenant]
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


@router.get("/me", response_model=Me, summary="Read about the key in use")
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
    """By slug; a tenant's own key sees only that tenant."""
    found = await tenants.list_tenants(access.database, after=page.cursor, limit=page.limit + 1)
    cursor = found[page.limit - 1].slug if len(found) > page.limit else None
    return answer_page("tenants", found[: page.limit], cursor)


@router.post(
    "/tenants",
    status_code=201,
    response_model=Tenant,
    summary="Add a tenant (operators)",
    responses=problems(408, 409, 413, 415, 422),
    openapi_extra=takes(NewTenant),
)
async def add_tenant(
    access: Operator, new: Annotated[NewTenant, Depends(read_body(NewTenant))]
) -> Response:
    added = await tenants.add(
        access.database,
        new.name,
        new.slug,
        new.domains,
        ui_config=new.ui_config.store(),
        fallback_text=new.fallback_text,
        fallback_texts=new.fallback_texts,
        change=access.change,
    )
    headers = {"Location": f"/admin/tenants/{added.slug}"}
    return answer(added, 201, revision=added.revision, headers=headers)


@router.get(
    "/tenants/{slug}",
    response_model=Tenant,
    summary="Read a tenant",
    responses=problems(404, 422),
)
async def read_tenant(tenant: PathTenant) -> Response:
    return answer(tenant, revision=tenant.revision)


@router.patch(
    "/tenants/{slug}",
    response_model=Tenant,
    summary="Change a tenant",
    responses=problems(404, 408, 412, 413, 415, 422, 428),
    openapi_extra=takes(TenantChanges),
)
async def update_tenant(
    access: Admin,
    tenant: PathTenant,
    expected: IfMatch,
    changes: Annotated[TenantChanges, Depends(read_body(TenantChanges))],
) -> Response:
    """Fields left out keep their values; those with fields of their own are replaced as a whole."""
    if changes.model_fields_set & OPERATORS_ONLY:
        access.require_operator()
    changed = await tenants.update(
        access.database, tenant.slug, changes.list_changes(), expected, access.change
    )
    return answer(changed, revision=changed.revision)


@router.delete(
    "/tenants/{slug}",
    status_code=204,
    summary="Delete a tenant with all its conversations (operators)",
    responses=problems(404, 412, 413, 415, 422, 428),
)
async def remove_tenant(access: Operator, tenant: PathTenant, expected: IfMatch) -> Response:
    await tenants.remove(access.database, tenant.slug, access.change, expected)
    return Response(status_code=204)


@router.post(
    "/tenants/{slug}/sign-out",
    status_code=204,
    summary="End every visitor's session of a tenant",
    responses=problems(404, 413, 415, 422),
)
async def sign_out(access: Admin, tenant: PathTenant) -> Response:
    await tenants.sign_out(access.database, tenant.slug, access.change)
    return Response(status_code=204)


@router.get(
    "/tenants/{slug}/domains",
    response_model=Domains,
    summary="List a tenant's domains",
    responses=problems(404, 422),
)
async def list_domains(tenant: PathTenant) -> Response:
    return answer({"domains": tenant.domains})


@router.post(
    "/tenants/{slug}/domains",
    status_code=201,
    response_model=NewDomain,
    summary="Allow a domain (operators)",
    responses=problems(404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewDomain),
)
async def add_domain(
    access: Operator, tenant: PathTenant, new: Annotated[NewDomain, Depends(read_body(NewDomain))]
) -> Response:
    """Answers with the domain as it is stored."""
    added = await tenants.add_domain(access.database, tenant.slug, new.domain, access.change)
    return answer({"domain": added}, 201)


@router.delete(
    "/tenants/{slug}/domains",
    status_code=204,
    summary="Stop allowing a domain (operators)",
    responses=problems(404, 413, 415, 422),
)
async def remove_domain(
    access: Operator, tenant: PathTenant, query: Annotated[DomainQuery, Query()]
) -> Response:
    await tenants.remove_domain(access.database, tenant.slug, query.domain, access.change)
    return Response(status_code=204)
