"""Tries an MCP server, as its owner does after adding it."""

import time
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from pydantic import Field

from hlas.agent.tools.mcp.pool import connect
from hlas.agent.tools.mcp.protocol import McpError
from hlas.agent.tools.mcp.servers import Endpoint, record_test
from hlas.agent.tools.tool_names import make_name
from hlas.outbound.client import OutboundClient
from hlas.store.db import Database
from hlas.tenants.audit import COMMAND_LINE, Change

SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """Whether a server works, and the names of its tools."""

    works: bool
    reason: Annotated[str | None, Field(description="why it does not work")]
    version: Annotated[str, Field(description="the revision of the protocol")]
    tools: Annotated[tuple[str, ...], Field(description="as the settings name them: server__tool")]
    left_out: Annotated[
        tuple[str, ...], Field(description="tools whose description is too large to offer")
    ]
    duration_ms: float


async def try_server(
    database: Database, endpoint: Endpoint, outbound: OutboundClient, change: Change = COMMAND_LINE
) -> Trial:
    """Connect anew, list the tools and record it in the audit. Nothing is called."""
    trial = await _try(endpoint, outbound)
    outcome = "works" if trial.works else "fails"
    await record_test(database, UUID(endpoint.tenant_id), endpoint.name, outcome, change)
    return trial


async def _try(endpoint: Endpoint, outbound: OutboundClient) -> Trial:
    started = time.perf_counter()
    client = connect(endpoint, outbound)
    reason, version = None, ""
    tools: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    try:
        listing = await client.list_tools(SECONDS)
        version, left_out = listing.version, listing.left_out
        # Of two tools whose names become the same, the agent has the first.
        tools = tuple(dict.fromkeys(make_name(endpoint.name, one.name) for one in listing.tools))
    except TimeoutError:
        reason = f"no answer within {SECONDS:g} s"
    except McpError as error:
        reason = str(error)
    finally:
        await client.close()
    milliseconds = round((time.perf_counter() - started) * 1000, 1)
    return Trial(reason is None, reason, version, tools, left_out, milliseconds)
