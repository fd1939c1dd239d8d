"""By the openai SDK."""

from collections.abc import AsyncIterator

from openai import AsyncOpenAI

from bench.endpoints.sse import BASE_URL, MODEL, make_app

client = AsyncOpenAI(base_url=BASE_URL, api_key="none")


async def ask(text: str) -> AsyncIterator[str]:
    stream = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": text}],
        max_tokens=800,
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        if chunk.choices and (piece := chunk.choices[0].delta.content):
            yield piece


app = make_app(ask)
