"""A client of one MCP server: negotiates the revision, lists its tools, calls them."""

import asyncio
import base64
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from hlas import __version__
from hlas.agent.tools.mcp.protocol import (
    HANDSHAKE,
    HANDSHAKES,
    MOST_PAGES,
    MOST_TOOLS,
    STATELESS,
    UNSUPPORTED_VERSION,
    CallResult,
    Json,
    McpError,
    Refused,
    RemoteTool,
    SessionLost,
    Transport,
    read_call,
    read_tool,
)
from hlas.agent.tools.mcp.schemas import Headers, clean

_ABOUT_US: Json = {"name": "hlas", "version": __version__}
_META = "io.modelcontextprotocol/"
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's tools, and the names of those that cannot be offered."""

    tools: tuple[RemoteTool, ...]
    left_out: tuple[str, ...]
    version: str


class Client:
    """Requests may be sent at the same time; the revision is negotiated by the first."""

    def __init__(self, transport: Transport, *, handshake_first: bool) -> None:
        self._transport = transport
        # Programs may hang on a method they do not know, so those are asked in the old way first.
        self._handshake_first = handshake_first
        self._version = ""
        self._negotiating = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def list_tools(self, seconds: float) -> Listing:
        """All pages within `seconds`."""
        async with asyncio.timeout(seconds):
            return await self._list_pages(seconds)

    async def _list_pages(self, seconds: float) -> Listing:
        tools: dict[str, RemoteTool] = {}
        left_out: list[str] = []
        cursor: object = None
        for _ in range(MOST_PAGES):
            params: Json = {} if cursor is None else {"cursor": cursor}
            result = await self._request("tools/list", params, {}, seconds)
            found = result.get("tools")
            if not isinstance(found, list):
                raise McpError("garbage", "the server does not list tools")
            for given in found:
                tool = read_tool(given)
                if tool is not None and len(tools) < MOST_TOOLS:
                    tools[tool.name] = tool
                elif isinstance(given, dict):
                    left_out.append(clean(str(given.get("name")), 64))
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str):
                break
        return Listing(tuple(tools.values()), tuple(left_out[:MOST_TOOLS]), self._version)

    async def call(self, tool: RemoteTool, arguments: Json, seconds: float) -> CallResult:
        params: Json = {"name": tool.name, "arguments": arguments}
        headers = {"Mcp-Name": _encode(tool.name), **_repeat(tool.headers, arguments)}
        # A gateway may answer 404 after the tool has acted: such a call is never sent twice.
        is_repeatable = tool.is_read_only is True
        result = await self._request(
            "tools/call", params, headers, seconds, is_repeatable=is_repeatable
        )
        return read_call(result)

    async def close(self) -> None:
        await self._transport.close()

    async def _request(
        self,
        method: str,
        params: Json,
        headers: Mapping[str, str],
        seconds: float,
        *,
        is_repeatable: bool = True,
    ) -> Json:
        async with asyncio.timeout(seconds):
            await self._negotiate(seconds)
            try:
                return await self._send(method, params, headers, seconds)
            except SessionLost:
                self._version = ""
                await self._negotiate(seconds)
                if not is_repeatable:
                    raise
                return await self._send(method, params, headers, seconds)

    async def _send(
        self, method: str, params: Json, headers: Mapping[str, str], seconds: float
    ) -> Json:
        message: Json = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method}
        if self._version == STATELESS:
            message["params"] = {**params, "_meta": _describe_us()}
            named = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": method, **headers}
        else:
            message["params"] = params
            named = {"MCP-Protocol-Version": self._version} if self._version else {}
        try:
            return await self._transport.exchange(message, named, seconds)
        except Refused as refused:
            if refused.number == UNSUPPORTED_VERSION:
                self._version = ""  # negotiate again: the server was replaced
            raise

    async def _negotiate(self, seconds: float) -> None:
        async with self._negotiating:
            if self._version:
                return
            first, second = self._discover, self._shake_hands
            if self._handshake_first:
                first, second = second, first
            try:
                is_agreed = await first(seconds)
            except Refused as refused:
                if refused.versions and not {STATELESS, *HANDSHAKES} & set(refused.versions):
                    raise McpError("version", "the server speaks no known revision") from None
                is_agreed = False
            if not is_agreed and not await second(seconds):
                raise McpError("version", "the server speaks no known revision")

    async def _discover(self, seconds: float) -> bool:
        message: Json = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": "server/discover",
            "params": {"_meta": _describe_us()},
        }
        headers = {"MCP-Protocol-Version": STATELESS, "Mcp-Method": "server/discover"}
        result = await self._transport.exchange(message, headers, seconds)
        versions = result.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS not in versions:
            return False
        self._version = STATELESS
        return True

    async def _shake_hands(self, seconds: float) -> bool:
        params: Json = {
            "protocolVersion": HANDSHAKE,
            "capabilities": {},
            "clientInfo": _ABOUT_US,
        }
        message: Json = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": "initialize",
            "params": params,
        }
        result = await self._transport.exchange(message, {}, seconds)
        version = result.get("protocolVersion")
        if not isinstance(version, str) or version not in HANDSHAKES:
            return False
        ready: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._transport.notify(ready, {"MCP-Protocol-Version": version}, seconds)
        self._version = version
        return True


def _describe_us() -> Json:
    return {
        f"{_META}protocolVersion": STATELESS,
        f"{_META}clientCapabilities": {},
        f"{_META}clientInfo": _ABOUT_US,
    }


def _repeat(headers: Headers, arguments: Json) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, token in headers:
        value: object = arguments
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, bool):
            found[f"Mcp-Param-{token}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            found[f"Mcp-Param-{token}"] = _encode(str(value))
    return found


def _encode(value: str) -> str:
    """Plain where a header can carry it, otherwise as the specification wraps it."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
