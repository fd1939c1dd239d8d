"""HTTP byte by byte, for requests that no ordinary client sends."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson


@dataclass
class Answer:
    """The response until the server closed the connection or stopped sending."""

    raw: bytes
    closed: bool

    @property
    def status(self) -> int:
        return int(self.raw.split(b" ", 2)[1]) if self.raw.startswith(b"HTTP/") else 0

    @property
    def headers(self) -> dict[str, str]:
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
        return {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)
        }

    @property
    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(self.raw.partition(b"\r\n\r\n")[2])
        return body


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def exchange(url: str, *pieces: bytes, silence: float = 3, limit: int = 2**20) -> Answer:
    """Send the pieces, then read until the server closes or sends nothing for a while."""
    reader, writer = await connect(url)
    received = b""
    closed = False
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        with suppress(TimeoutError):
            while len(received) < limit:
                piece = await asyncio.wait_for(reader.read(65536), silence)
                if not piece:
                    closed = True
                    break
                received += piece
    except ConnectionError:
        closed = True
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return Answer(received, closed)


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: hlas.test", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
