"""Load over HTTP, from wrk if it is installed, otherwise from our own client."""

import asyncio
import json
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench import client
from bench.service import SECRET
from bench.store import Conversation
from hlas.visitors.keys import FixedKeys
from hlas.visitors.tokens import Tokens

KEY = "\1"
TEXT = "Hello, do you have the blue one in stock? I would like two of them by Friday."
SCRIPT = Path(__file__).with_suffix(".lua")
WRK = shutil.which("wrk")


@dataclass(frozen=True)
class Outcome:
    requests: int
    refused: int
    broken: int
    seconds: float
    p50: float
    p99: float

    @property
    def accepted(self) -> int:
        return self.requests - self.refused

    @property
    def rate(self) -> float:
        return self.accepted / self.seconds


def name() -> str:
    return "wrk" if WRK else "the built-in client"


def run(
    port: int, requests: list[str], *, connections: int, seconds: float, delay_ms: int = 0
) -> Outcome:
    """Send these requests in turn over the connections, each pausing `delay_ms` on average."""
    if WRK is None:
        found = asyncio.run(client.run(port, requests, connections, seconds, delay_ms))
        return Outcome(*found)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="") as file:
        file.write("".join(f"{request}\0" for request in requests))
        file.flush()
        command = [WRK, "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--timeout", "10s"]
        command += ["-s", str(SCRIPT), f"http://127.0.0.1:{port}", "--"]
        command += [file.name, secrets.token_hex(6), str(delay_ms)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def run_from(
    source: str, port: int, requests: list[str], connections: int, seconds: float
) -> Outcome:
    """Send from a local address of its own, which wrk cannot do."""
    return Outcome(*asyncio.run(client.run(port, requests, connections, seconds, 0, source)))


def once(port: int, requests: list[str], source: str = "127.0.0.1") -> list[int]:
    """Send each request once, with its key unchanged; returns the statuses."""
    numbered = (request.replace(KEY, secrets.token_hex(16)) for request in requests)
    return asyncio.run(client.run_once(port, list(numbered), source))


def sends(conversations: list[Conversation], *, key: str = KEY, address: str = "") -> list[str]:
    """Requests that send a new message to each conversation, like a browser."""
    body = json.dumps({"text": TEXT}, separators=(",", ":"))
    extra = {"Idempotency-Key": key, "X-Forwarded-For": address}
    return [
        _request("POST", "/widget/messages", body, _headers(conversation) | extra)
        for conversation in conversations
    ]


def empty_posts(conversations: list[Conversation], path: str) -> list[str]:
    """Requests with the same headers to a route that does nothing."""
    return [
        _request("POST", path, "{}", _headers(conversation) | {"Idempotency-Key": KEY})
        for conversation in conversations
    ]


def history_reads(conversations: list[Conversation]) -> list[str]:
    return [
        _request("GET", f"/widget/conversations/{one.id}/messages?after=0", "", _headers(one))
        for one in conversations
    ]


def stream_open(conversation: Conversation) -> str:
    path = f"/widget/conversations/{conversation.id}/stream"
    return _request("GET", path, "", _headers(conversation))


def replies(conversations: list[Conversation], text: str) -> list[str]:
    """Requests that send this message to each conversation and stream its answer."""
    body, accept = json.dumps({"text": text}), {"Accept": "text/event-stream"}
    return [
        _request("POST", "/widget/agent/reply", body, _headers(conversation) | accept)
        for conversation in conversations
    ]


def endpoint_asks(count: int, text: str) -> list[str]:
    """The same, for the bare endpoints."""
    return [_request("POST", "/answer", json.dumps({"text": text}), {})] * count


def session_opens(conversations: list[Conversation], *, address: str = "") -> list[str]:
    origins = sorted({conversation.origin for conversation in conversations})
    return [
        _request("POST", "/widget/session", "{}", {"Origin": origin, "X-Forwarded-For": address})
        for origin in origins
    ]


def _headers(conversation: Conversation) -> dict[str, str]:
    tokens = Tokens(FixedKeys((SECRET,)), ttl_seconds=86400)
    token = tokens.issue(conversation.tenant_id, conversation.id, conversation.origin, 1)
    return {"Origin": conversation.origin, "Authorization": f"Bearer {token}"}


def _request(method: str, path: str, body: str, headers: dict[str, str]) -> str:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    return "\r\n".join([*lines, "", body])
