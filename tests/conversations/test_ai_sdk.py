"""The `ai` package, as published, reads our streams: its transport, its schema, its messages."""

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import node_packages
from factories import Live, Site, make_site
from hlas.conversations import frames
from hlas.conversations.frames import Cursor
from hlas.store.db import Database
from scripted_agent import words
from web_servers import raw_server

# The newest for node 20.
PACKAGE = "ai@6.0.319"
SCRIPTS = Path(__file__).parents[1] / "support" / "node"
HEAD = b"HTTP/1.1 200 OK\r\n" + b"".join(b"%b: %b\r\n" % one for one in frames.HEADERS) + b"\r\n"


@pytest.fixture(scope="module")
def packages() -> Path:
    node_packages.find_node()
    return node_packages.install(PACKAGE)


@asynccontextmanager
async def reading(
    packages: Path, *arguments: str, script: str = "read_stream.mjs"
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """What the script prints, line by line."""
    node = node_packages.find_node()
    process = await asyncio.create_subprocess_exec(
        node, str(SCRIPTS / script), str(packages), *arguments, stdout=PIPE
    )
    assert process.stdout is not None
    output = process.stdout

    async def lines() -> AsyncIterator[dict[str, Any]]:
        async for line in output:
            yield orjson.loads(line)

    try:
        async with asyncio.timeout(30):
            yield lines()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_stream(live_server: Live, operators: Database, packages: Path) -> None:
    """A question and its answer, through the package's own transport with its default address."""
    site = await make_site(live_server, operators, handler="agent")
    printed = []
    arguments = (live_server.url, site.conversation_id, site.session["token"])
    async with reading(packages, *arguments) as lines:
        async for line in lines:
            printed.append(line)
            if len(printed) == 1:
                assert (await site.send("Do you deliver abroad?")).status_code == 200
    assert [line for line in printed if "error" in line] == []
    chunks = [line["chunk"] for line in printed if "chunk" in line]
    assert [chunk["type"] for chunk in chunks] == [
        "data-state",
        "data-message",
        "start",
        "text-start",
        "text-delta",
        "text-end",
        "finish",
        "data-message",
    ]
    answer = chunks[-1]["data"]
    assert chunks[4]["delta"] == answer["content"]
    [message] = [line["message"] for line in printed if "message" in line]
    assert message["id"] == chunks[2]["messageId"] == answer["id"]
    assert message["role"] == "assistant"
    texts = [part for part in message["parts"] if part["type"] == "text"]
    assert texts == [{"type": "text", "text": answer["content"], "state": "done"}]


async def test_reply(visit: Site, packages: Path) -> None:
    """The package sends a message to /widget/agent/reply and reads its answer to the end."""
    arguments = (visit.live.url, "say 20 words in 0.5 s", visit.session["token"])
    async with reading(packages, *arguments, script="send_message.mjs") as lines:
        printed = [line async for line in lines]
    assert [line for line in printed if "error" in line] == []
    [message] = [line["message"] for line in printed if "message" in line]
    stored = (await visit.history())["messages"]
    assert message["id"] == stored[1]["id"]
    texts = [part for part in message["parts"] if part["type"] == "text"]
    assert texts == [{"type": "text", "text": words(20), "state": "done"}]


async def test_every_frame(packages: Path) -> None:
    """No frame of the contract is refused, those that seldom come included."""
    sent = [
        frames.encode("data-state", data={"status": "open"}, transient=True),
        frames.encode("data-typing", data={"who": "operator"}, transient=True),
        frames.encode("start", messageId="1"),
        frames.encode("text-start", id=frames.TEXT),
        frames.encode("text-delta", id=frames.TEXT, delta="half of it"),
        frames.RESET,
        frames.encode("start", messageId="2"),
        frames.encode("tool-input-available", toolCallId="t", toolName="search", input={}),
        frames.encode("tool-output-available", toolCallId="t", output={}),
        frames.encode("source-url", sourceId="s", url="https://shop.example/"),
        frames.encode("text-start", id=frames.TEXT),
        frames.encode("text-delta", id=frames.TEXT, delta="all of it"),
        frames.TEXT_END,
        frames.FINISH,
    ]
    body = b"".join(frames.event(frame, Cursor(7)) for frame in sent)
    async with (
        raw_server(HEAD, frames.OPENING, frames.KEEP_ALIVE, body) as url,
        reading(packages, url, "conversation", "token") as lines,
    ):
        printed = [line async for line in lines]
    assert [line for line in printed if "error" in line] == []
    chunks = [line["chunk"] for line in printed if "chunk" in line]
    assert chunks == [orjson.loads(frame) for frame in sent]
