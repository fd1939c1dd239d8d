"""The official client, 1.x or 2.x, in an environment of its own: asks our server for a street."""

import asyncio
import json
import sys
from typing import Any


async def ask_old(command: list[str], arguments: dict[str, str]) -> Any:
    from mcp import ClientSession, StdioServerParameters  # type: ignore[import-not-found]
    from mcp.client.stdio import stdio_client  # type: ignore[import-not-found]

    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        agreed = await session.initialize()
        await session.send_ping()
        tools = await session.list_tools()
        result = await session.call_tool("get_localities", arguments)
        return agreed.protocolVersion, [tool.name for tool in tools.tools], result.content[0].text


async def ask_new(command: list[str], arguments: dict[str, str], mode: str) -> Any:
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(stdio_client(parameters), mode=mode) as client:
        tools = await client.list_tools()
        result = await client.call_tool("get_localities", arguments)
        return (
            client.protocol_version,
            [tool.name for tool in tools.tools],
            result.content[0].text,
        )


def main() -> None:
    mode, arguments, *command = sys.argv[1:]
    asked = json.loads(arguments)
    ask = ask_old(command, asked) if mode == "old" else ask_new(command, asked, mode)
    print(json.dumps(asyncio.run(ask)))


if __name__ == "__main__":
    main()
