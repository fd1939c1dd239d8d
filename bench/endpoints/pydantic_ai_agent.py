"""By an agent of pydantic-ai."""

from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.endpoints.sse import BASE_URL, MODEL, make_app

agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE_URL, api_key="none")))


async def ask(text: str) -> AsyncIterator[str]:
    async with agent.run_stream(text) as result:
        # Not debounced: the others send each token at once, too.
        async for piece in result.stream_text(delta=True, debounce_by=None):
            yield piece


app = make_app(ask)
