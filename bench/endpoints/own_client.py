"""By our own client."""

import asyncio
from collections.abc import AsyncIterator

from bench.endpoints.sse import BASE_URL, MODEL, make_app
from hlas.agent.providers import chat
from hlas.agent.providers.chat import ChatClient
from hlas.agent.providers.models import Model

SECONDS = 60.0

client = ChatClient()
model = Model(name=MODEL, base_url=BASE_URL, model=MODEL, key="", input_price=0, output_price=0)


async def ask(text: str) -> AsyncIterator[str]:
    body = chat.encode(model, [{"role": "user", "content": text}], [], 800)
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    completing = asyncio.create_task(
        client.complete(model, body, pieces.put_nowait, seconds=SECONDS)
    )
    completing.add_done_callback(lambda _: pieces.put_nowait(None))
    while (piece := await pieces.get()) is not None:
        yield piece
    await completing


app = make_app(ask)
