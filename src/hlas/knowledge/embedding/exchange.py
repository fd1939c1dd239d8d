"""One request to the embedding process, over a connection of its own."""

import asyncio
from pathlib import Path

from hlas.knowledge.embedding.protocol import LARGEST_BODY, Reply, Request, encode, read_reply
from hlas.knowledge.embedding.runtime import is_private


async def exchange(socket: Path, request: Request, body: bytes = b"") -> tuple[Reply, bytes]:
    """Raises OSError, EOFError or ProtocolError without an answer; the caller limits the time."""
    # In /tmp somebody else may have made the directory.
    if not is_private(socket.parent):
        raise FileNotFoundError
    reader, writer = await asyncio.open_unix_connection(socket, limit=LARGEST_BODY)
    try:
        writer.write(encode(request, body))
        await writer.drain()
        return await read_reply(reader)
    finally:
        writer.transport.abort()
