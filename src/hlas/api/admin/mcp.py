"""A tenant's MCP servers. A tenant's own key may add addresses; programs are the operator's."""

from typing import Annotated

from fastapi import Depends, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hlas import errors
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.mcp.servers import NAME, Server
from hlas.agent.tools.mcp.trial import Trial, try_server
from hlas.api.admin.access import Admin, PathTenant, answer, read_body, router
from hlas.api.documentation import problems, takes
from hlas.services import Services
from hlas.settings import ConfigurationError

PathName = Annotated[str, Path(pattern=NAME, description="the server's name, as listed")]


class NewServer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=NAME, description="its tools are named name__tool")
    url: str = Field(min_length=1, max_length=2000, description="its https address")
    headers: dict[str, str] = Field(
        default_factory=dict, description="sent with every request; not shown again"
    )


class Servers(BaseModel):
    servers: list[Server]


@router.get(
    "/tenants/{slug}/mcp",
    response_model=Servers,
    summary="List a tenant's MCP servers",
    responses=problems(404, 422),
)
async def list_servers(access: Admin, tenant: PathTenant) -> Response:
    return answer({"servers": await servers.list_servers(access.database, tenant.id)})


@router.post(
    "/tenants/{slug}/mcp",
    status_code=201,
    response_model=Server,
    summary="Add an MCP server",
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=takes(NewServer),
)
async def add_server(
    request: Request,
    access: Admin,
    tenant: PathTenant,
    new: Annotated[NewServer, Depends(read_body(NewServer))],
) -> Response:
    """Add one at an https address. Its headers are stored encrypted."""
    services: Services = request.app.state.services
    try:
        added = await servers.add_address(
            access.database,
            services.vault,
            services.outbound,
            tenant.id,
            new.name,
            new.url,
            new.headers,
            access.change,
        )
    except ConfigurationError as error:
        raise errors.VaultShut(str(error)) from None
    return answer(added, 201, headers={"Location": f"/admin/tenants/{tenant.slug}/mcp"})


@router.post(
    "/tenants/{slug}/mcp/{name}/test",
    response_model=Trial,
    summary="Try an MCP server",
    responses=problems(404, 409, 413, 415, 422),
)
async def try_it(request: Request, access: Admin, tenant: PathTenant, name: PathName) -> Response:
    """Connect to it and list its tools; nothing is called. It takes up to 10 s."""
    services: Services = request.app.state.services
    try:
        endpoint = await servers.find(services.operators, services.vault, str(tenant.id), name)
    except ConfigurationError as error:
        raise errors.VaultShut(str(error)) from None
    if endpoint.command:
        # It starts a program.
        access.require_operator()
    return answer(await try_server(access.database, endpoint, services.outbound, access.change))


@router.delete(
    "/tenants/{slug}/mcp/{name}",
    status_code=204,
    summary="Remove an MCP server",
    responses=problems(404, 413, 415, 422),
)
async def remove_server(access: Admin, tenant: PathTenant, name: PathName) -> Response:
    await servers.remove(access.database, tenant.id, name, access.change)
    return Response(status_code=204)
