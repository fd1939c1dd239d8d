"""What a tenant's agent looks things up with: MCP servers and products."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Response

from hlas import errors
from hlas.agent import agent_settings
from hlas.agent.agent_settings import AgentSettings
from hlas.agent.tools import product_files, products
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.mcp.servers import McpServerError, Server
from hlas.agent.tools.mcp.trial import Trial, try_server
from hlas.agent.tools.products import LONGEST_SKU, Product, ProductError
from hlas.api.console.access import (
    CONSOLE,
    Form,
    PathTenant,
    Sent,
    Signed,
    Visit,
    go,
    router,
)
from hlas.http.body import FORM_FACTOR
from hlas.knowledge.entries import Saved
from hlas.outbound.client import OutboundClient, OutboundError
from hlas.services import Services
from hlas.settings import ConfigurationError
from hlas.tenants.tenants import Tenant

PAGE = 20
LONGEST_SEARCH = 200
MOST_FOUND = 50

Problems = dict[str, str]

INVALID_NAME = "A name is 1 to 31 characters: a letter of a-z, then a-z, 0-9 and _."
# By the code of an OutboundError.
URL_PROBLEMS = {
    "invalid_url": "Write an https address such as https://tools.example.com/mcp.",
    "not_https": "Only https addresses are allowed.",
    "private_address": "This is not a public address. Only the operator can allow it, with "
    "OUTBOUND_PRIVATE_HOSTS.",
}
NOT_STORED = "Headers cannot be stored: the operator has to set SECRETS_KEY first."
NOT_READ = "its headers cannot be read with the present SECRETS_KEY; remove it and add it again"
AGAIN = "Write the headers again; they are not shown."


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of the test of a server, shown below it."""

    server: str
    reason: str | None
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server in the list, and how many of its tools the agent may use."""

    name: str
    place: str
    is_program: bool
    allowed: str
    tried: Tried | None


@dataclass(frozen=True, slots=True)
class Shelf:
    """A page of the products, or those that were found."""

    number: int
    products: list[Product]
    find: str
    after: str
    following: str | None


@router.get("/tenants/{slug}/tools")
async def read_tools(
    visit: Signed, tenant: PathTenant, find: str = "", after: str = ""
) -> Response:
    return await _tools_page(visit, tenant, find=find, after=after)


async def _tools_page(
    visit: Visit,
    tenant: Tenant,
    status: int = 200,
    *,
    find: str = "",
    after: str = "",
    form: Form | None = None,
    problems: Problems | None = None,
    tried: Tried | None = None,
    saved: Saved | None = None,
) -> Response:
    services: Services = visit.request.app.state.services
    settings = await agent_settings.read(visit.database, tenant.id)
    listed = await servers.list_servers(visit.database, tenant.id)
    return visit.page(
        "tools.html",
        status,
        tenant=tenant,
        tools=settings.tools,
        servers=[_list_server(visit, one, settings, tried) for one in listed],
        # A page never shows headers again, not even those that were refused.
        form={name: value for name, value in (form or {}).items() if name != "headers"},
        problems=problems or {},
        saved=saved,
        largest=services.settings.max_json_body_bytes * FORM_FACTOR,
        shelf=await _list_products(visit, tenant, find, after),
    )


def _list_server(
    visit: Visit, server: Server, settings: AgentSettings, tried: Tried | None
) -> ListedServer:
    place = server.place
    if server.command and not visit.administrator.is_operator:
        place = "A program that your operator runs"
    mine = [name for name in settings.tools if name.startswith(f"{server.name}__")]
    allowed = f"{len(mine)} allowed" if mine else "not allowed yet"
    if f"{server.name}__*" in mine:
        allowed = "all tools allowed"
    is_tried = tried is not None and tried.server == server.name
    return ListedServer(
        server.name, place, bool(server.command), allowed, tried if is_tried else None
    )


async def _list_products(visit: Visit, tenant: Tenant, find: str, after: str) -> Shelf:
    """The products that the agent would find, or a page of all products."""
    find, after = _clean_place(find, after)
    following = None
    if find:
        shown = await products.find_products(visit.database, str(tenant.id), find, MOST_FOUND)
    else:
        shown, following = await products.page_products(visit.database, tenant.id, after, PAGE)
    number = await products.count_products(visit.database, tenant.id)
    return Shelf(number, shown, find, after, following)


def _clean_place(find: str, after: str) -> tuple[str, str]:
    """What is searched for, and the cursor; a cursor that cannot be valid is empty."""
    return find.strip()[:LONGEST_SEARCH], after if _is_sku(after) else ""


def _is_sku(text: str) -> bool:
    return 0 < len(text) <= LONGEST_SKU and text.isprintable()


def _outbound(visit: Visit) -> OutboundClient:
    services: Services = visit.request.app.state.services
    return services.outbound


@router.post("/tenants/{slug}/tools/servers")
async def add_server(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Add one at an https address; programs are added on the command line."""
    given = {name: form.get(name, "").strip() for name in ("name", "url")}
    # As it is, so that an error names the right line.
    given["headers"] = form.get("headers", "")
    problems = _find_problems(given, _outbound(visit)) or await _add(visit, tenant, given)
    if problems:
        if given["headers"].strip():
            problems.setdefault("headers", AGAIN)
        return await _tools_page(visit, tenant, 422, form=form, problems=problems)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/tools", "added")


def _find_problems(given: Mapping[str, str], outbound: OutboundClient) -> Problems:
    """What is wrong, by field."""
    found: Problems = {}
    if not re.fullmatch(servers.NAME, given["name"]):
        found["name"] = INVALID_NAME
    try:
        outbound.require_public(given["url"])
    except OutboundError as error:
        found["url"] = URL_PROBLEMS[error.code]
    try:
        servers.check_headers(servers.parse_headers(given["headers"]))
    except McpServerError as error:
        found["headers"] = _make_sentence(error)
    return found


def _make_sentence(error: errors.TenantError) -> str:
    """The line for the command line, as a sentence. Only for lines that do not quote a secret."""
    line = str(error).replace("`", '"')
    return f"{line[0].upper()}{line[1:]}."


async def _add(visit: Visit, tenant: Tenant, given: Mapping[str, str]) -> Problems:
    services: Services = visit.request.app.state.services
    try:
        await servers.add_address(
            visit.database,
            services.vault,
            _outbound(visit),
            tenant.id,
            given["name"],
            given["url"],
            servers.parse_headers(given["headers"]),
            visit.change,
        )
    except ConfigurationError:
        return {"headers": NOT_STORED}
    except errors.McpServerTaken as error:
        return {"name": error.message}
    except errors.TooManyMcpServers as error:
        return {"": error.message}
    return {}


@router.post("/tenants/{slug}/tools/servers/test")
async def test_server(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Connect and list its tools; nothing is called."""
    services: Services = visit.request.app.state.services
    name = _read_name(form)
    try:
        endpoint = await servers.find(services.operators, services.vault, str(tenant.id), name)
    except ConfigurationError:
        return await _tools_page(visit, tenant, tried=Tried(name, NOT_READ))
    if endpoint.command:
        # It starts a program.
        visit.require_operator()
    trial = await try_server(visit.database, endpoint, services.outbound, visit.change)
    return await _tools_page(visit, tenant, tried=Tried(name, trial.reason, trial))


@router.post("/tenants/{slug}/tools/servers/remove")
async def remove_server(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    await servers.remove(visit.database, tenant.id, _read_name(form), visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/tools", "removed")


def _read_name(form: Form) -> str:
    name = form.get("server", "")
    if not re.fullmatch(servers.NAME, name):
        raise errors.McpServerNotFound("there is no such server")
    return name


@router.post("/tenants/{slug}/tools/products")
async def import_products(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """All of the CSV or nothing; an error names the line."""
    try:
        found = product_files.parse("CSV", form.get("csv", "").encode())
        saved = await products.save(
            visit.database,
            tenant.id,
            found,
            source="console",
            replace="replace" in form,
            change=visit.change,
        )
    except ProductError as error:
        problems = {"csv": _make_sentence(error)}
    except errors.TooManyProducts as error:
        problems = {"csv": error.message}
    else:
        return await _tools_page(visit, tenant, saved=saved)
    return await _tools_page(visit, tenant, 422, form=form, problems=problems)


@router.post("/tenants/{slug}/tools/products/remove")
async def remove_product(visit: Signed, tenant: PathTenant, form: Sent) -> Response:
    """Back to the same place in the list."""
    sku = form.get("sku", "")
    if not _is_sku(sku):
        raise errors.ProductNotFound("there is no such product")
    await products.remove_products(visit.database, tenant.id, [sku], visit.change)
    find, after = _clean_place(form.get("find", ""), form.get("after", ""))
    place = {"find": find, "after": after, "done": "removed"}
    query = urlencode({name: value for name, value in place.items() if value})
    return go(f"{CONSOLE}/tenants/{tenant.slug}/tools?{query}")
