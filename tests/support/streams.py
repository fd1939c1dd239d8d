"""Readers of a conversation's stream, as a browser would be one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson

from factories import Site


class Follower:
    """What a client knows of a conversation, over as many connections as it takes."""

    def __init__(self) -> None:
        self.cursor = ""
        self.frames: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        # The text of the run under way.
        self.text = ""
        self.resets = 0
        self._buffer = b""
        self.changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Take bytes as they come; a frame counts once it is complete."""
        *blocks, self._buffer = (self._buffer + data).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"data" in fields:
                self._take(orjson.loads(fields[b"data"]), fields[b"id"].decode())
        self.changed.set()

    def disconnect(self) -> None:
        self._buffer = b""

    def _take(self, frame: dict[str, Any], cursor: str) -> None:
        self.cursor = cursor
        self.frames.append(frame)
        match frame["type"]:
            case "data-message":
                message = frame["data"]
                assert message["seq"] == len(self.messages) + 1, "a message is missing or doubled"
                self.messages.append(message)
            case "start":
                self.text = ""
            case "text-delta":
                self.text += frame["delta"]
            case "data-reset":
                self.resets += 1
                self.text = ""
            case _:
                pass

    def kinds(self) -> list[str]:
        return [frame["type"] for frame in self.frames if frame["type"] != "data-state"]

    async def until(self, roles: list[str]) -> None:
        """Until these messages are there."""
        async with asyncio.timeout(60):
            while [message["role"] for message in self.messages] != roles:
                self.changed.clear()
                await self.changed.wait()

    async def until_text(self, part: str) -> None:
        async with asyncio.timeout(60):
            while part not in self.text:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def open_stream(
    client: httpx.AsyncClient, site: Site, follower: Follower, **headers: str
) -> AsyncIterator[httpx.Response]:
    path = f"/widget/conversations/{site.conversation_id}/stream"
    resume = {"Last-Event-ID": follower.cursor} if follower.cursor else {}
    follower.disconnect()
    async with client.stream(
        "GET", path, headers={**site.headers(), **resume, **headers}, timeout=60
    ) as response:
        yield response


async def follow(client: httpx.AsyncClient, site: Site, follower: Follower) -> None:
    """Read until the stream ends; a busy service is asked again, as by a browser."""
    while True:
        async with open_stream(client, site, follower) as response:
            if response.status_code == 503:
                await asyncio.sleep(0.2)
                continue
            assert response.status_code == 200, (await response.aread()).decode()
            async for data in response.aiter_raw():
                follower.feed(data)
            return
