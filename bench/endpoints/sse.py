"""The endpoint that all of them share: a text in, its answer out as server-sent events."""

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

Ask: TypeAlias = Callable[[str], AsyncIterator[str]]

MODEL = "scripted"
BASE_URL = os.environ.get("BENCH_MODEL_URL", "")


def make_app(ask: Ask) -> Starlette:
    async def answer(request: Request) -> Response:
        text = (await request.json())["text"]
        return StreamingResponse(_write(ask(text)), media_type="text/event-stream")

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/answer", answer, methods=["POST"]), Route("/health", health)])


async def _write(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    async for piece in pieces:
        frame = {"type": "text-delta", "id": "text", "delta": piece}
        yield f"data: {json.dumps(frame, separators=(',', ':'))}\n\n"
    yield "data: [DONE]\n\n"
