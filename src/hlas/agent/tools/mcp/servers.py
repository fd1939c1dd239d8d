"""A tenant's MCP servers: addresses that its administrators add, programs that operators add."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

import asyncpg
import orjson
from pydantic import Field

from hlas.errors import McpServerNotFound, McpServerTaken, TenantError, TooManyMcpServers
from hlas.outbound.client import OutboundClient, OutboundError
from hlas.store.db import Database, Queries, Row
from hlas.store.vault import Vault
from hlas.tenants.audit import COMMAND_LINE, Change, record

queries = Queries.beside(__file__)

NAME = r"^[a-z][a-z0-9_]{0,30}$"
MOST_SERVERS = 10
MOST_HEADERS = 20
LONGEST_HEADER = 4000
# Ours, or those of the connection.
RESERVED = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length"),
        *("content-type", "cookie", "expect", "host", "keep-alive", "proxy-authorization"),
        *("te", "trailer", "transfer-encoding", "upgrade", "user-agent"),
    }
)

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class McpServerError(TenantError):
    """The MCP server cannot be added this way."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server as it is listed; either `url` or `command` is empty."""

    name: str
    url: Annotated[str, Field(description="empty: a program that the operator added")]
    command: tuple[str, ...]
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["name"], row["url"], tuple(row["command"]), row["created_at"])

    @property
    def place(self) -> str:
        return self.url or shlex.join(self.command)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server as it is connected to."""

    tenant_id: str
    name: str
    url: str
    command: tuple[str, ...]
    # In clear; never logged, stored or shown.
    headers: Mapping[str, str] = field(repr=False)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise with one line for headers that cannot be sent, or that are ours."""
    if len(headers) > MOST_HEADERS:
        raise McpServerError(f"there can be at most {MOST_HEADERS} headers")
    for name, value in headers.items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name) or lower in RESERVED or lower.startswith("mcp-"):
            raise McpServerError("a header's name is invalid, or is set by Hlas itself")
        if not _HEADER_VALUE.fullmatch(value) or len(value) > LONGEST_HEADER:
            raise McpServerError("a header's value is empty, too long or not visible ASCII")


def parse_headers(text: str) -> dict[str, str]:
    """Headers from lines of `Name: value`; errors name the line, never what is in it."""
    headers: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise McpServerError(f"line {number}: it is not `Name: value`")
        headers[name.strip()] = value.strip()
    return headers


async def list_servers(database: Database, tenant_id: UUID) -> list[Server]:
    rows = await database.all(queries.list_servers, tenant_id)
    return [Server.from_row(row) for row in rows]


async def add_address(
    database: Database,
    vault: Vault,
    outbound: OutboundClient,
    tenant_id: UUID,
    name: str,
    url: str,
    headers: Mapping[str, str],
    change: Change = COMMAND_LINE,
) -> Server:
    """Add a server at an https address; `headers` are stored sealed."""
    check_headers(headers)
    try:
        address = str(outbound.require_public(url))
    except OutboundError as error:
        raise McpServerError(f"the address cannot be used: {error}") from None
    sealed = None
    if headers:
        sealed = vault.seal(orjson.dumps(dict(headers)).decode(), _purpose(str(tenant_id), name))
    return await _add(database, tenant_id, name, change, queries.add_address, address, sealed)


async def add_program(
    operators: Database,
    tenant_id: UUID,
    name: str,
    command: Sequence[str],
    change: Change = COMMAND_LINE,
) -> Server:
    """Add a program that every worker starts when it is needed. Operators only."""
    if not command or any("\0" in word for word in command):
        raise McpServerError("the command is empty")
    return await _add(operators, tenant_id, name, change, queries.add_program, list(command))


async def _add(
    database: Database,
    tenant_id: UUID,
    name: str,
    change: Change,
    query: str,
    *values: object,
) -> Server:
    if not re.fullmatch(NAME, name):
        raise McpServerError("the name must be 1 to 31 characters of a-z, 0-9 and _")
    async with database.transaction() as connection:
        await _require_room(connection, tenant_id)
        row = await connection.fetchrow(query, tenant_id, name, *values)
        if row is None:
            raise McpServerTaken(f"there is a server {name} already; remove it first")
        added = Server.from_row(row)
        await record(connection, change, tenant_id, "mcp.add", name, after=_describe(added))
    return added


async def _require_room(connection: asyncpg.Connection, tenant_id: UUID) -> None:
    await connection.execute(queries.lock_tenant, tenant_id)
    if len(await connection.fetch(queries.list_servers, tenant_id)) >= MOST_SERVERS:
        raise TooManyMcpServers(f"a tenant can have at most {MOST_SERVERS} MCP servers")


async def remove(
    database: Database, tenant_id: UUID, name: str, change: Change = COMMAND_LINE
) -> None:
    async with database.transaction() as connection:
        row = await connection.fetchrow(queries.remove_server, tenant_id, name)
        if row is None:
            raise McpServerNotFound(f"there is no server {name}; `hlas mcp list` shows all")
        before = {"url": row["url"], "command": row["command"]}
        await record(connection, change, tenant_id, "mcp.remove", name, before)


async def load(operators: Database, vault: Vault, tenant_id: str) -> list[Endpoint]:
    """All servers of a tenant, with their headers in clear. Operators only."""
    rows = await operators.all(queries.load_servers, tenant_id)
    return [_open(row, vault, tenant_id) for row in rows]


async def find(operators: Database, vault: Vault, tenant_id: str, name: str) -> Endpoint:
    for endpoint in await load(operators, vault, tenant_id):
        if endpoint.name == name:
            return endpoint
    raise McpServerNotFound(f"there is no server {name}; `hlas mcp list` shows all")


async def record_test(
    database: Database, tenant_id: UUID, name: str, outcome: str, change: Change = COMMAND_LINE
) -> None:
    """A test sends requests to the server, so it is audited."""
    async with database.transaction() as connection:
        after = {"outcome": outcome}
        await record(connection, change, tenant_id, "mcp.test", name, after=after)


def _open(row: Row, vault: Vault, tenant_id: str) -> Endpoint:
    sealed = row["headers"]
    headers = vault.open(sealed, _purpose(tenant_id, row["name"])) if sealed else "{}"
    return Endpoint(
        tenant_id, row["name"], row["url"], tuple(row["command"]), orjson.loads(headers)
    )


def _purpose(tenant_id: str, name: str) -> str:
    """What sealed headers are bound to, so that they cannot be moved to another server."""
    return f"mcp {tenant_id} {name}"


def _describe(server: Server) -> dict[str, object]:
    described = asdict(server)
    del described["name"], described["created_at"]
    return described
