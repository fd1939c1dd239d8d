"""MCP servers that misbehave by script, and the official ones in environments of their own."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

import node_packages
from factories import free_port

HERE = Path(__file__).parent
SERVER, CLIENT = HERE / "mcp_server.py", HERE / "mcp_client.py"
UV = Path(sys.executable).with_name("uv")
START_SECONDS = 60

TOOL = {
    "name": "look",
    "description": "Looks.",
    "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
}

Answer = Callable[[dict[str, Any], web.BaseRequest], Any]


@dataclass
class ScriptedServer:
    """A server with a handshake and one tool. `answer` decides about each message first.

    It returns a result, a response, or None for what a well-behaved server answers.
    """

    answer: Answer = lambda _message, _request: None
    tools: list[dict[str, Any]] = field(default_factory=lambda: [TOOL])
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    place: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.place}/mcp"

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "") for message in self.asked]

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "DELETE":
            self.asked.append({"method": "DELETE"})
            return web.Response()
        message = orjson.loads(await request.read())
        self.asked.append(message)
        self.headers.append(dict(request.headers))
        answer = self.answer(message, request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        if answer is None:
            answer = self._behave(message)
        if answer is None:
            return web.Response(status=400)
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    def _behave(self, message: dict[str, Any]) -> dict[str, Any] | None:
        match message["method"]:
            case "initialize":
                return {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
            case "tools/list":
                return {"tools": self.tools}
            case "tools/call":
                return {"content": [{"type": "text", "text": "seen"}]}
            case _:
                return None


@asynccontextmanager
async def serve(server: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    runner = web.ServerRunner(web.Server(server), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.place = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def stream_events(request: web.BaseRequest, *events: bytes, endless: bytes = b"") -> Any:
    """Answer with a stream of events."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    try:
        while endless:
            await response.write(endless)
            await asyncio.sleep(0.001)
    except ConnectionError:
        pass
    return response


def official(version: str, script: Path, *arguments: str) -> list[str]:
    """The command that runs a script with this version of the official SDK."""
    return [str(_find_python(version)), str(script), *arguments]


def _find_python(version: str) -> Path:
    """In an environment of its own, outside of the repository."""
    return node_packages.CACHE / f"mcp-{version}" / "bin" / "python"


def require_official(version: str) -> str | None:
    """Install this version if it is missing; why it cannot be used here, if it cannot."""
    if not UV.exists():
        return "uv is not in this environment"
    if not _has_official(version):
        python = _find_python(version)
        for command in (
            ["venv", "--quiet", "--clear", "--python", sys.executable, str(python.parents[1])],
            ["pip", "install", "--quiet", "--python", str(python), f"mcp=={version}"],
        ):
            subprocess.run([UV, *command], env=environment(), check=False, timeout=150)
    return None if _has_official(version) else f"mcp {version} cannot be fetched"


def _has_official(version: str) -> bool:
    python = _find_python(version)
    if not python.exists():
        return False
    return not subprocess.run([python, "-c", "import mcp"], check=False).returncode


def environment() -> dict[str, str]:
    return {**os.environ, "UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "true")}


@contextmanager
def official_server(version: str) -> Iterator[str]:
    """A server of the official SDK on loopback."""
    port = free_port()
    process = subprocess.Popen(
        official(version, SERVER, "http", str(port)),
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()
