"""The tools that a tenant's agent may use: ours, and those of the tenant's MCP servers."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import orjson
from pydantic import ValidationError

from hlas import log
from hlas.agent.agent_settings import AgentSettings
from hlas.agent.prompts import Passage
from hlas.agent.ranker import Ranker
from hlas.agent.tools.builtin import (
    Builtin,
    GetProductTool,
    HandOverTool,
    OnHandOver,
    SearchKnowledgeTool,
)
from hlas.agent.tools.calls import Caller, Numbers, ToolResult, cut
from hlas.agent.tools.mcp import servers
from hlas.agent.tools.mcp.pool import Pool
from hlas.agent.tools.mcp.protocol import McpError, RemoteTool
from hlas.agent.tools.mcp.servers import Endpoint
from hlas.agent.tools.tool_names import LONGEST_NAME, SEPARATOR, is_listed, is_named, make_name
from hlas.errors import Unavailable
from hlas.knowledge.language import Language
from hlas.outbound.client import OutboundClient
from hlas.settings import ConfigurationError
from hlas.store.db import Database
from hlas.store.vault import Vault

__all__ = ["Caller", "ToolResult", "Toolbox", "Tools"]

LARGEST_ARGUMENTS = 64 * 1024
# Every request to the model carries the definitions, and is paid for them.
MOST_TOOLS = 64
LARGEST_DEFINITIONS = 64 * 1024

_TOO_LONG = f"The arguments are longer than {LARGEST_ARGUMENTS // 1024} kB."
_NOT_JSON = "The arguments are not a JSON object."
_TRIAL = "This is a trial: the tool was not called."
_FAILED = "The tool failed. Answer without it, or say that you could not find out."


class Meter(Protocol):
    def tool_call(self, outcome: str) -> None: ...


class Tool(Protocol):
    """A tool for one caller."""

    @property
    def name(self) -> str: ...

    def define(self) -> dict[str, object]:
        """Name, description and JSON schema, for the model."""

    def describe(self, language: Language) -> str:
        """A title for people."""

    async def run(self, arguments: dict[str, object], seconds: float) -> ToolResult: ...


class RemoteCall:
    """A tool of an MCP server."""

    def __init__(self, pool: Pool, endpoint: Endpoint, tool: RemoteTool) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self.tool = tool
        self.name = make_name(endpoint.name, tool.name)

    def define(self) -> dict[str, object]:
        # The server's words are quoted: they are a description, not instructions.
        said = self.tool.description.replace('"', "'")
        return {
            "name": self.name,
            "description": f'A tool of the server {self._endpoint.name}, which says: "{said}"',
            "parameters": self.tool.schema,
        }

    def describe(self, language: Language) -> str:
        del language
        return self.tool.title or self.name

    async def run(self, arguments: dict[str, object], seconds: float) -> ToolResult:
        try:
            result = await self._pool.call(self._endpoint, self.tool, arguments, seconds)
        except McpError as error:
            if error.code == "timeout":
                raise TimeoutError from None
            return ToolResult(f"{_FAILED} Reason: {error}.", "error")
        return ToolResult(result.text or "(no text)", "error" if result.is_error else "ok")


class Tools:
    """What one answer may call. What a model or a server does wrong is a result, not an error."""

    def __init__(
        self, caller: Caller, tools: Sequence[Tool], settings: AgentSettings, meter: Meter
    ) -> None:
        self._caller = caller
        self._tools = _choose(tools)
        self._settings = settings
        self._meter = meter

    def definitions(self) -> list[dict[str, object]]:
        """As in the field `tools` of a request to a model."""
        return [{"type": "function", "function": tool.define()} for tool in self._tools.values()]

    def is_acting(self, name: str) -> bool:
        """Whether the visitor has to confirm a call.

        The owner decides for tools that the settings name. Of those that `server__*` allows, the
        ones that do not call themselves read-only are confirmed; destructive ones always.
        """
        tool = self._tools.get(name)
        if tool is None:
            return False
        if is_listed(name, self._settings.acting_tools):
            return True
        if not isinstance(tool, RemoteCall):
            return False
        if tool.tool.is_destructive and not tool.tool.is_read_only:
            return True
        return not is_named(name, self._settings.tools) and tool.tool.is_read_only is not True

    def describe(self, name: str) -> str:
        tool = self._tools.get(name)
        return tool.describe(self._caller.language) if tool is not None else ""

    async def call(self, name: str, arguments: str, *, seconds: float) -> ToolResult:
        started = time.perf_counter()
        tool = self._tools.get(name)
        result = await self._call(tool, arguments, seconds)
        log.info(
            "tool_called",
            tool=tool.name if tool is not None else "unknown",
            outcome=result.outcome,
            duration_ms=round((time.perf_counter() - started) * 1000, 1),
        )
        self._meter.tool_call(result.outcome)
        return ToolResult(cut(result.text), result.outcome, result.passages)

    async def _call(self, tool: Tool | None, arguments: str, seconds: float) -> ToolResult:
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return ToolResult(f"There is no such tool. There are: {names}.", "unknown")
        given = _parse(arguments)
        if isinstance(given, str):
            return ToolResult(given, "invalid")
        try:
            async with asyncio.timeout(seconds):
                return await self._run(tool, given, seconds)
        except ValidationError as error:
            return ToolResult(_explain(error), "invalid")
        except TimeoutError:
            return ToolResult(
                f"The tool did not answer within {seconds:g} s. Answer without it, or say that you "
                "could not find out.",
                "timeout",
            )
        except Exception as error:  # noqa: BLE001  # a tool must not end the answer
            if not isinstance(error, Unavailable):
                where = log.find_place(error)
                log.error("tool_failed", tool=tool.name, error=type(error).__name__, where=where)
            return ToolResult(_FAILED, "error")

    async def _run(self, tool: Tool, arguments: dict[str, object], seconds: float) -> ToolResult:
        if self._caller.is_trial and self.is_acting(tool.name):
            return ToolResult(_TRIAL, "error")
        return await tool.run(arguments, seconds)


class Toolbox:
    """One for each worker: opens the tools for an answer."""

    def __init__(
        self,
        ranker: Ranker,
        operators: Database,
        vault: Vault,
        outbound: OutboundClient,
        meter: Meter,
        on_hand_over: OnHandOver | None = None,
    ) -> None:
        self._ranker = ranker
        self._operators = operators
        self._vault = vault
        self._meter = meter
        self._on_hand_over = on_hand_over
        self._pool = Pool(outbound)

    async def open(
        self, caller: Caller, settings: AgentSettings, supplied: Sequence[Passage] = ()
    ) -> Tools:
        """The tools that the settings allow; passages are numbered after those `supplied`."""
        numbers = Numbers(supplied)
        ours: list[Builtin] = [
            SearchKnowledgeTool(self._ranker, caller, numbers),
            GetProductTool(self._ranker, caller, numbers),
            HandOverTool(self._operators, caller, self._on_hand_over),
        ]
        allowed: list[Tool] = [tool for tool in ours if tool.name in settings.tools]
        remote = await self._open_remote(caller.tenant_id, settings)
        return Tools(caller, [*allowed, *remote], settings, self._meter)

    async def clean_up(self) -> None:
        """End programs and sessions that nobody has used for a while."""
        await self._pool.clean_up()

    async def close(self) -> None:
        await self._pool.close()

    async def _open_remote(self, tenant_id: str, settings: AgentSettings) -> list[Tool]:
        wanted = {name.partition(SEPARATOR)[0] for name in settings.tools if SEPARATOR in name}
        if not wanted:
            await self._pool.keep_only(tenant_id, wanted)
            return []
        try:
            endpoints = await servers.load(self._operators, self._vault, tenant_id)
        except (Unavailable, ConfigurationError) as error:
            log.warning("mcp_failed", tenant_id=tenant_id, reason=type(error).__name__)
            return []
        asked = [one for one in endpoints if one.name in wanted]
        await self._pool.keep_only(tenant_id, {one.name for one in asked})
        listed = await asyncio.gather(*map(self._list, asked))
        return [tool for tools in listed for tool in tools if is_listed(tool.name, settings.tools)]

    async def _list(self, endpoint: Endpoint) -> list[RemoteCall]:
        """The server's tools, none if it is down."""
        try:
            listing = await self._pool.list_tools(endpoint)
        except McpError:
            return []
        except Exception as error:  # noqa: BLE001  # whatever a server sends, the agent answers
            log.warning("mcp_failed", server=endpoint.name, reason=type(error).__name__)
            return []
        return [RemoteCall(self._pool, endpoint, tool) for tool in listing.tools]


def _choose(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Tools by name, as many as a request can carry; two of one name are none: which is meant?"""
    names = Counter(tool.name for tool in tools)
    chosen: dict[str, Tool] = {}
    size = 0
    for tool in tools:
        size += len(orjson.dumps(tool.define()))
        if names[tool.name] == 1 and len(chosen) < MOST_TOOLS and size <= LARGEST_DEFINITIONS:
            chosen[tool.name] = tool
    return chosen


def _parse(arguments: str) -> dict[str, object] | str:
    """The arguments, or what is wrong with them. Models may send nothing for no arguments."""
    if len(arguments) > LARGEST_ARGUMENTS or len(arguments.encode(errors="replace")) > (
        LARGEST_ARGUMENTS
    ):
        return _TOO_LONG
    try:
        given = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return _NOT_JSON
    return given if isinstance(given, dict) else _NOT_JSON


def _explain(error: ValidationError) -> str:
    """Which arguments are wrong and why, without their values."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    faults = [
        f"`{'.'.join(map(str, one['loc']))[:LONGEST_NAME]}`: {one['msg']}" for one in found[:5]
    ]
    return f"Invalid arguments: {'; '.join(faults)}."
