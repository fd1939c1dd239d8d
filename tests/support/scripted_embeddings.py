"""An OpenAI-compatible embeddings endpoint, whose vectors count a few words of the text."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

# Texts with words of the same group are near each other.
GROUPS = (("open", "hours", "otevreno"), ("delivery", "postage", "shipping"), ("car", "parking"))


def embed(text: str) -> list[float]:
    folded = text.lower()
    counts = [float(sum(word in folded for word in group)) for group in GROUPS]
    return [*counts, 0.1]


class ScriptedEmbeddings:
    """Counts what it is asked for; `answer` may be replaced to misbehave."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 200
        self.usage: dict[str, int] | None = {"prompt_tokens": 7, "total_tokens": 7}
        self.change: Callable[[dict[str, Any]], object] = lambda body: body
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        assert (request.method, request.path) == ("POST", "/v1/embeddings")
        asked = await request.json()
        self.requests.append(asked)
        self.keys.append(request.headers.get("Authorization"))
        await self.gate.wait()
        if self.status != 200:
            return web.json_response({"error": {"message": "refused"}}, status=self.status)
        data = [
            {"object": "embedding", "index": number, "embedding": embed(text)}
            for number, text in enumerate(asked["input"])
        ]
        # The order is not promised.
        body = {"object": "list", "data": data[::-1], "model": asked["model"]}
        if self.usage is not None:
            body["usage"] = self.usage
        return web.json_response(self.change(body))


@asynccontextmanager
async def serve_embeddings() -> AsyncIterator[ScriptedEmbeddings]:
    made = ScriptedEmbeddings()
    runner = web.ServerRunner(web.Server(made))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield made
    made.gate.set()
    await runner.cleanup()
