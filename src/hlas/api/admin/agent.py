"""How a tenant's agent answers."""

from typing import Annotated

from fastapi import Depends, Response

from hlas.agent import agent_settings
from hlas.agent.agent_settings import OPERATORS_ONLY, AgentChanges, AgentSettings
from hlas.api.admin.access import Admin, IfMatch, PathTenant, answer, read_body, router
from hlas.api.documentation import problems, takes


@router.get(
    "/tenants/{slug}/agent",
    response_model=AgentSettings,
    summary="Read how a tenant's agent answers",
    responses=problems(404, 422),
)
async def read_agent(access: Admin, tenant: PathTenant) -> Response:
    settings = await agent_settings.read(access.database, tenant.id)
    return answer(settings, revision=settings.revision)


@router.patch(
    "/tenants/{slug}/agent",
    response_model=AgentSettings,
    summary="Change how a tenant's agent answers",
    responses=problems(404, 408, 412, 413, 415, 422, 428),
    openapi_extra=takes(AgentChanges),
)
async def update_agent(
    access: Admin,
    tenant: PathTenant,
    expected: IfMatch,
    changes: Annotated[AgentChanges, Depends(read_body(AgentChanges))],
) -> Response:
    """Fields left out keep their values; lists are replaced as a whole."""
    if changes.model_fields_set & OPERATORS_ONLY:
        access.require_operator()
    changed = await agent_settings.update(
        access.database, tenant, changes.list_changes(), expected, access.change
    )
    return answer(changed, revision=changed.revision)
