"""Edge case 61: idle streams cost little memory, and others are served beside them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import psutil
import pytest

from hlas.store.db import Database
from processes import UNLIMITED, Served, serve_process
from visitors import Visitor, arrive

STREAM_BYTES = 30 * 1024
# What a worker needs for the first streams, however many there are.
OWN_BYTES = 8 * 1024 * 1024
OPENING_AT_ONCE = 20
WITHOUT_LIMITS = {
    **UNLIMITED,
    "RATE_LIMIT_STREAMS_IP": "0",
    "RATE_LIMIT_STREAMS_CONVERSATION": "0",
}


@asynccontextmanager
async def open_stream(served: Served, visitor: Visitor) -> AsyncIterator[asyncio.StreamReader]:
    """A stream that has shown the state of its conversation."""
    address = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    fields = {"Host": address.netloc, **visitor.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    path = f"/widget/conversations/{visitor.conversation_id}/stream"
    writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
    try:
        start = await asyncio.wait_for(reader.readuntil(b"data-state"), 60)
        assert start.startswith(b"HTTP/1.1 200 "), start
        yield reader
    finally:
        writer.transport.abort()


def count_bytes(served: Served) -> int:
    """Resident memory of the server's processes."""
    parent = psutil.Process(served.process.pid)
    return sum(one.memory_info().rss for one in (parent, *parent.children(recursive=True)))


async def open_idle(served: Served, operators: Database, visitors: int, streams_each: int) -> None:
    """Open the streams, then send and read beside them."""
    crowd = await arrive(served.client, operators, visitors)
    sender = crowd[0]
    before = count_bytes(served)
    turns = asyncio.Semaphore(OPENING_AT_ONCE)
    async with AsyncExitStack() as stack:

        async def open_one(visitor: Visitor) -> asyncio.StreamReader:
            async with turns:
                return await stack.enter_async_context(open_stream(served, visitor))

        several = [visitor for visitor in crowd for _ in range(streams_each)]
        readers = await asyncio.gather(*map(open_one, several))
        assert count_bytes(served) - before < OWN_BYTES + len(readers) * STREAM_BYTES
        stored = (await sender.post(served.client, "hello")).json()["message_id"]
        own = readers[:streams_each]
        frames = await asyncio.gather(
            *(asyncio.wait_for(one.readuntil(stored.encode()), 30) for one in own)
        )
        assert all(b"data-message" in frame for frame in frames)
        assert not any(one.at_eof() for one in readers)


async def test_idle_streams(database_url: str, operators: Database) -> None:
    """Edge case 61: 400 idle streams take bounded memory, and a message reaches its readers."""
    async with serve_process(database_url, workers=1, **WITHOUT_LIMITS) as served:
        await open_idle(served, operators, visitors=40, streams_each=10)


@pytest.mark.soak
async def test_5000_idle_streams(database_url: str, operators: Database) -> None:
    """Edge case 61 at its full count; docs/benchmark.md has the p99 of messages beside them."""
    async with serve_process(database_url, workers=1, **WITHOUT_LIMITS) as served:
        await open_idle(served, operators, visitors=500, streams_each=10)
