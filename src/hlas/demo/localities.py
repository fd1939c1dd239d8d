"""A small MCP server over a CSV: does the demo's network reach this street? Needs no library.

It reads JSON-RPC from standard input, one message a line, and speaks all revisions of the protocol:
those with a handshake, and the stateless one, whose requests carry the revision in `_meta`.
"""

import csv
import json
import re
import sys
import unicodedata
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = dict[str, object]

STATELESS = "2026-07-28"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
ABOUT: Json = {"name": "localities", "version": "1.0.0"}
LONGEST = 200
# A typo or two; below this another street is meant.
SIMILARITY = 0.8
_META = "io.modelcontextprotocol/"

TOOL: Json = {
    "name": "get_localities",
    "title": "Coverage",
    "description": "Whether the network reaches a street, how, and at what speed.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "street": {"type": "string", "description": "The street, without a house number"},
            "city": {"type": "string", "description": "The town, if it is known"},
        },
        "required": ["street"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message, **({"data": data} if data else {})}


def fold(text: str) -> str:
    """Lower case, no diacritics, no house number, one spelling of common abbreviations."""
    apart = unicodedata.normalize("NFKD", text.lower())
    plain = "".join(one for one in apart if not unicodedata.combining(one))
    plain = re.sub(r"\b(ulice|ul)\b\.?|\b\d+[a-z]?(/\d+[a-z]?)?\b", " ", plain)
    plain = re.sub(r"\bnam\b\.?", "namesti ", plain)
    return " ".join(re.findall(r"[a-z]+", re.sub(r"\btr\b\.?", "trida ", plain)))


def read_rows() -> list[dict[str, str]]:
    path = Path(__file__).with_suffix(".csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def find(rows: list[dict[str, str]], street: str, city: str) -> list[dict[str, str]]:
    """The rows of a street, of one with a similar name where there is none."""
    rows = [row for row in rows if not fold(city) or _is_like(fold(city), fold(row["city"]))]
    exact = [row for row in rows if fold(row["street"]) == fold(street)]
    if exact or not fold(street):
        return exact
    return [row for row in rows if _is_like(fold(street), fold(row["street"]))]


def _is_like(one: str, other: str) -> bool:
    return bool(get_close_matches(one, [other], 1, SIMILARITY))


def show(row: dict[str, str]) -> str:
    place = f"{row['street']}, {row['city']}"
    if row["available_from"]:
        return f"{place}: not yet, planned for {row['available_from']}."
    return f"{place}: covered, {row['technology']}, up to {row['speed_mbps']} Mb/s."


def call(params: Json) -> Json:
    arguments = params.get("arguments") or {}
    if params.get("name") != TOOL["name"] or not isinstance(arguments, dict):
        raise RpcError(-32602, "Unknown tool")
    street, city = arguments.get("street"), arguments.get("city", "")
    texts = [one for one in (street, city) if isinstance(one, str) and len(one) <= LONGEST]
    if len(texts) < 2 or set(arguments) - {"street", "city"}:
        text = "The arguments are street and, if it is known, city; both are short texts."
        return {"content": [{"type": "text", "text": text}], "isError": True}
    found = find(read_rows(), texts[0], texts[1])
    text = "\n".join(map(show, found)) or "This street is not covered."
    return {"content": [{"type": "text", "text": text}], "isError": False}


def answer(method: str, params: Json) -> Json:
    meta = params.get("_meta")
    version = meta.get(f"{_META}protocolVersion") if isinstance(meta, dict) else None
    if version not in {None, STATELESS}:
        supported: Json = {"supported": [STATELESS], "requested": version}
        raise RpcError(-32022, "Unsupported protocol version", supported)
    tools: Json = {"tools": {}}
    match method:
        case "initialize":
            wanted = params.get("protocolVersion")
            agreed = wanted if wanted in HANDSHAKES else HANDSHAKES[-1]
            return {"protocolVersion": agreed, "capabilities": tools, "serverInfo": ABOUT}
        case "server/discover":
            result: Json = {"supportedVersions": [STATELESS], "capabilities": tools}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = call(params)
        case "ping":
            return {}
        case _:
            raise RpcError(-32601, "Method not found")
    if version is None:
        return result
    if method != "tools/call":
        result |= {"ttlMs": 60_000, "cacheScope": "public"}
    return {**result, "resultType": "complete", "_meta": {f"{_META}serverInfo": ABOUT}}


def reply(line: str) -> Json | None:
    """The answer to a message; None where it needs none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        error = {"code": -32600, "message": "Invalid request"}
        return {"jsonrpc": "2.0", "id": None, "error": error}
    if "id" not in message:
        return None
    head: Json = {"jsonrpc": "2.0", "id": message["id"]}
    params = message.get("params")
    try:
        given = params if isinstance(params, dict) else {}
        return {**head, "result": answer(message["method"], given)}
    except RpcError as error:
        return {**head, "error": error.error}


def main() -> None:
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for line in sys.stdin:
        message = reply(line)
        if message is not None:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
