"""Messages of the Model Context Protocol: JSON-RPC 2.0, with a handshake or stateless."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import orjson

from hlas.agent.tools.mcp.schemas import Headers, bound_schema, clean, find_headers

Json: TypeAlias = dict[str, object]

# The revision without sessions, and the last one with a handshake.
STATELESS = "2026-07-28"
HANDSHAKE = "2025-11-25"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", HANDSHAKE)

UNSUPPORTED_VERSION = -32022
METHOD_NOT_FOUND = -32601

# What is read of one answer. A result is cut much earlier (tools.LARGEST_RESULT).
LARGEST_ANSWER = 256 * 1024
MOST_TOOLS = 64
MOST_PAGES = 8
LONGEST_NAME = 128
LONGEST_TITLE = 80
LONGEST_DESCRIPTION = 600


class McpError(Exception):
    """A server cannot be used. `code` is static, for logs; the message is one line for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refused(McpError):
    """The server answered with an error. What it says about it is not shown to anybody."""

    def __init__(self, number: int = 0, versions: tuple[str, ...] = ()) -> None:
        super().__init__("refused", "the server refused the request")
        self.number = number
        # Those it supports, where it says so.
        self.versions = versions


class SessionLost(McpError):
    """The server does not know our session. With HTTP somebody in between may have answered."""

    def __init__(self) -> None:
        super().__init__("session_lost", "the server lost the session")


class Transport(Protocol):
    """Carries messages to one server."""

    async def exchange(self, message: Json, headers: Mapping[str, str], seconds: float) -> Json:
        """Send a request and return its result; raises McpError."""

    async def notify(self, message: Json, headers: Mapping[str, str], seconds: float) -> None:
        """Send a message that has no answer."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A tool as its server describes it, bounded and without invisible characters."""

    name: str
    title: str
    description: str
    schema: Json
    # What the server says about it; None where it says nothing.
    is_read_only: bool | None
    is_destructive: bool | None
    # Arguments that the stateless revision repeats as headers.
    headers: Headers


@dataclass(frozen=True, slots=True)
class CallResult:
    text: str
    is_error: bool


def read_result(message: object, number: int) -> Json:
    """The result in an answer to the request `number`."""
    if not isinstance(message, dict) or message.get("id") != number:
        raise McpError("garbage", "the server does not answer in JSON-RPC")
    if "error" in message:
        raise read_refusal(message)
    result = message.get("result")
    if not isinstance(result, dict):
        raise McpError("garbage", "the server does not answer in JSON-RPC")
    if result.get("resultType") == "input_required":
        raise McpError("input_required", "the server asks for input that an agent cannot give")
    return result


def read_refusal(message: object) -> Refused:
    """The error in an answer; a server may send anything here."""
    error = message.get("error") if isinstance(message, dict) else None
    if not isinstance(error, dict):
        return Refused()
    number, data = error.get("code"), error.get("data")
    found = data.get("supported") if isinstance(data, dict) else None
    versions = (
        tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()
    )
    return Refused(number if isinstance(number, int) else 0, versions)


def answer_server(message: Json) -> Json:
    """Our answer to a request of the server: it may ask whether we are there, and nothing else."""
    head: Json = {"jsonrpc": "2.0", "id": message.get("id")}
    if message.get("method") == "ping":
        return {**head, "result": {}}
    return {**head, "error": {"code": METHOD_NOT_FOUND, "message": "not supported"}}


def is_request(message: object) -> bool:
    return isinstance(message, dict) and "method" in message and "id" in message


def parse(data: bytes) -> object:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise McpError("garbage", "the server does not answer in JSON") from None


def read_tool(given: object) -> RemoteTool | None:
    """None for a tool that cannot be offered: no name, or a schema that is too large or deep."""
    if not isinstance(given, dict):
        return None
    name, schema = given.get("name"), bound_schema(given.get("inputSchema"))
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or schema is None:
        return None
    hints = given.get("annotations")
    hints = hints if isinstance(hints, dict) else {}
    title = given.get("title") or hints.get("title")
    return RemoteTool(
        name=name,
        title=clean(title, LONGEST_TITLE) if isinstance(title, str) else "",
        description=clean(str(given.get("description") or ""), LONGEST_DESCRIPTION),
        schema=schema,
        is_read_only=_flag(hints.get("readOnlyHint")),
        is_destructive=_flag(hints.get("destructiveHint")),
        headers=find_headers(given.get("inputSchema")),
    )


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def read_call(result: Json) -> CallResult:
    """The text of a result; what is not text is only mentioned."""
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [_read_block(block) for block in blocks if isinstance(block, dict)]
    if not texts and "structuredContent" in result:
        texts = [orjson.dumps(result["structuredContent"]).decode()]
    return CallResult("\n".join(texts), is_error=result.get("isError") is True)


def _read_block(block: Json) -> str:
    resource = block.get("resource")
    for holder in (block, resource if isinstance(resource, dict) else {}):
        text = holder.get("text")
        if isinstance(text, str):
            return text
    return f"({clean(str(block.get('type') or 'something'), 20)} left out)"
