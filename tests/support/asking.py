"""Requests to a scripted model through the model client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hlas.agent.providers.chat import ChatClient, ModelError, encode
from hlas.agent.providers.models import Model

KEY = "sk-very-secret-provider-key"


@asynccontextmanager
async def open_client() -> AsyncIterator[ChatClient]:
    client = ChatClient()
    yield client
    await client.close()


def make_model(url: str, key: str = KEY) -> Model:
    return Model("test", url, "scripted-1", key, 1, 1)


def make_body(text: str, max_tokens: int = 100) -> bytes:
    return encode(make_model(""), [{"role": "user", "content": text}], [], max_tokens)


def ignore(_: str) -> None:
    """For tests that look at the completion only."""


class Asked:
    """A request, and the text that came before its end."""

    def __init__(
        self, client: ChatClient, url: str, text: str = "", *, seconds: float = 30
    ) -> None:
        self.text = ""
        self.spoke = asyncio.Event()
        self.body = make_body(text)
        self.task = asyncio.create_task(
            client.complete(make_model(url), self.body, self.hear, seconds=seconds)
        )

    def hear(self, piece: str) -> None:
        self.text += piece
        self.spoke.set()

    async def fail(self) -> tuple[str, bool, bool]:
        """The fields of the error that it must end with."""
        with pytest.raises(ModelError) as caught:
            await self.task
        error = caught.value
        assert str(error) == error.code
        return error.code, error.is_timeout, error.may_be_paid
