"""A tenant's MCP servers from the command line."""

import shlex
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hlas import settings as configuration
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.mcp.servers import McpServerError, Server
from hlas.agent.tools.mcp.trial import Trial, try_server
from hlas.cli.database import AsJson, show, with_operators
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.store.vault import Vault
from hlas.tenants import tenants

mcp = typer.Typer(
    help="MCP servers, whose tools a tenant's agent may use.",
    no_args_is_help=True,
)

Tenant = Annotated[str, typer.Option(metavar="SLUG", help="The tenant's slug.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `list` shows it.")]


async def _find_tenant_id(operators: Database, slug: str) -> UUID:
    return (await tenants.find_tenant(operators, slug)).id


@mcp.command()
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="a-z, 0-9 and _; tools are named NAME__tool.")
    ],
    tenant: Tenant,
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="Its https address.", show_default=False)
    ] = None,
    header_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Headers to send, as `Name: value`, one a line."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="A program to start here instead of an address."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Add a server. Its headers are stored encrypted and not shown again.

    Then allow its tools: they are named NAME__tool, or NAME__* for all.
    """
    if (url is None) == (command is None):
        raise McpServerError("name either the server's URL or a --command")
    if command is not None and header_file is not None:
        raise McpServerError("a program gets no headers")
    headers = read_headers(header_file) if header_file is not None else {}
    settings = configuration.load()

    async def work(operators: Database) -> Server:
        tenant_id = await _find_tenant_id(operators, tenant)
        if url is None:
            return await servers.add_program(operators, tenant_id, name, _split(command or ""))
        vault, outbound = Vault.from_settings(settings), OutboundClient.from_settings(settings)
        return await servers.add_address(operators, vault, outbound, tenant_id, name, url, headers)

    added = with_operators(work)
    show(
        added,
        as_json=as_json,
        text=f"{tenant} has the server {name} now. Try it: hlas mcp test {name} --tenant {tenant}",
    )


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        raise McpServerError("the command has an open quote") from None


def read_headers(path: Path) -> dict[str, str]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise McpServerError(f"{path} cannot be read: {type(error).__name__}") from None
    try:
        return servers.parse_headers(text)
    except McpServerError as error:
        raise McpServerError(f"{path}, {error}") from None


@mcp.command("list")
def list_servers(tenant: Tenant, *, as_json: AsJson = False) -> None:
    """List a tenant's servers, without their headers."""

    async def work(operators: Database) -> list[Server]:
        return await servers.list_servers(operators, await _find_tenant_id(operators, tenant))

    found = with_operators(work)
    lines = [f"{one.name}  {one.place}" for one in found]
    show(found, as_json=as_json, text="\n".join(lines) or "No servers yet: `hlas mcp add`.")


@mcp.command("test")
def try_it(name: Name, tenant: Tenant, *, as_json: AsJson = False) -> None:
    """Connect to a server and list its tools. Nothing is called."""
    settings = configuration.load()

    async def work(operators: Database) -> Trial:
        tenant_id = await _find_tenant_id(operators, tenant)
        vault, outbound = Vault.from_settings(settings), OutboundClient.from_settings(settings)
        endpoint = await servers.find(operators, vault, str(tenant_id), name)
        try:
            return await try_server(operators, endpoint, outbound)
        finally:
            await outbound.close()

    trial = with_operators(work)
    if not trial.works and not as_json:
        raise McpServerError(f"{name}: {trial.reason}")
    lines = [f"{name} works ({trial.version}, {trial.duration_ms:.0f} ms). Its tools:"]
    lines += [f"  {tool}" for tool in trial.tools]
    lines += [f"  {tool}: left out, its description is too large" for tool in trial.left_out]
    show(trial, as_json=as_json, text="\n".join(lines))
    if not trial.works:
        raise typer.Exit(1)


@mcp.command()
def remove(name: Name, tenant: Tenant, *, as_json: AsJson = False) -> None:
    """Remove a server. Answers under way may still use it."""

    async def work(operators: Database) -> None:
        await servers.remove(operators, await _find_tenant_id(operators, tenant), name)

    with_operators(work)
    show({"removed": name}, as_json=as_json, text=f"{tenant} no longer has the server {name}.")
