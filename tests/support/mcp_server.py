"""An MCP server made with the official SDK, 1.x or 2.x, in an environment of its own."""

import sys
import time
from typing import Any

try:
    from mcp.server.mcpserver import (  # type: ignore[import-not-found]
        MCPServer as Server,
    )

    IS_NEW = True
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[import-not-found]

    IS_NEW = False


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


def fail() -> str:
    """Fail."""
    raise ValueError("no such order")


def repeat(text: str, times: int) -> str:
    """Repeat a text."""
    return text * times


def sleep(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "awake"


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    place: dict[str, Any] = {"host": "127.0.0.1", "port": port}
    server = Server("tests") if IS_NEW or kind == "stdio" else Server("tests", **place)
    for tool in (add, fail, repeat, sleep):
        server.tool()(tool)
    if kind == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", **(place if IS_NEW else {}))


if __name__ == "__main__":
    main()
