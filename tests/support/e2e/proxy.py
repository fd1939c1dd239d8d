"""A faulty network between browser and server, with planned losses, delays and refusals."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import urlsplit


class Fault(Enum):
    PASS = auto()
    DELAY = auto()  # the response is delayed
    BUSY = auto()  # 503, nothing reaches the server
    LOSE_REQUEST = auto()  # cut before anything reaches the server
    LOSE_ANSWER = auto()  # cut after the server has handled the request
    HALVE_ANSWER = auto()  # cut in the middle of the response
    HOLD_STREAM = auto()  # a buffering proxy: nothing of a stream is passed on


@dataclass
class Seen:
    """A request that was forwarded."""

    method: str
    path: str
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""

    @property
    def is_stream(self) -> bool:
        return self.method == "GET" and urlsplit(self.path).path.endswith("/stream")


@dataclass
class Proxy:
    upstream: str
    choose: Callable[[Seen], Fault] = lambda _: Fault.PASS
    url: str = ""
    delay_seconds: float = 0.2
    retry_after: str = "1"
    offline: bool = False
    # A stream is passed on in pieces of so many bytes, and cut after so many.
    piece_bytes: int = 65536
    half_bytes: int = 700
    requests: list[tuple[Seen, Fault]] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _streams: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    def list_streams(self) -> list[Seen]:
        """Every stream that was asked for."""
        return [seen for seen, _ in self.requests if seen.is_stream]

    def cut_streams(self) -> None:
        """Cut every stream in mid-air; new ones pass."""
        for writer in list(self._streams):
            writer.transport.abort()

    def go_offline(self) -> None:
        """Close every connection, including new ones."""
        self.offline = True
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while not self.offline and (seen := await _read_request(reader)):
                fault = Fault.PASS if seen.method == "OPTIONS" else self.choose(seen)
                self.requests.append((seen, fault))
                if seen.is_stream and fault not in {Fault.LOSE_REQUEST, Fault.BUSY}:
                    await self._pass_stream(seen, fault, reader, writer)
                    break
                if not await self._pass_on(seen, fault, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side may disconnect, too
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, seen: Seen, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        """Forward a request; returns whether the connection stays open."""
        if fault is Fault.LOSE_REQUEST:
            return False
        if fault is Fault.BUSY:
            writer.write(_busy(seen, self.retry_after))
            await writer.drain()
            return True
        answer = await self._ask(seen)
        if fault is Fault.LOSE_ANSWER or self.offline:
            return False
        if fault is Fault.DELAY:
            await asyncio.sleep(self.delay_seconds)
        half = len(answer) - 10 if fault is Fault.HALVE_ANSWER else len(answer)
        writer.write(answer[:half])
        await writer.drain()
        return half == len(answer)

    async def _pass_stream(
        self,
        seen: Seen,
        fault: Fault,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass a stream on as it comes, until either side leaves or the fault ends it."""
        self._streams.add(writer)
        upstream, asking = await self._connect()
        asking.write(seen.head + seen.body)
        passing = asyncio.create_task(self._pass_pieces(upstream, writer, fault))
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (passing, leaving):
                task.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)
            self._streams.discard(writer)
            asking.close()

    async def _pass_pieces(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
    ) -> None:
        if fault is Fault.DELAY:
            await asyncio.sleep(self.delay_seconds)
        head = await upstream.readuntil(b"\r\n\r\n")
        if fault is Fault.LOSE_ANSWER:
            return
        if fault is not Fault.HOLD_STREAM:
            # Half of the headers would be taken for all of them.
            writer.write(head)
        left = self.half_bytes if fault is Fault.HALVE_ANSWER else 1 << 40
        while left > 0 and (data := await upstream.read(min(left, self.piece_bytes))):
            if fault is not Fault.HOLD_STREAM:
                writer.write(data)
                await writer.drain()
                # One piece is one packet.
                await asyncio.sleep(0)
            left -= len(data)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self.upstream)
        return await asyncio.open_connection(address.hostname, address.port)

    async def _ask(self, seen: Seen) -> bytes:
        reader, writer = await self._connect()
        try:
            writer.write(seen.head + seen.body)
            head = await reader.readuntil(b"\r\n\r\n")
            length = Seen("", "", head, b"").header("content-length")
            return head + await reader.readexactly(int(length or 0))
        finally:
            writer.close()


async def _read_request(reader: asyncio.StreamReader) -> Seen | None:
    with suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b" ", 2)
        seen = Seen(method.decode(), path.decode(), head, b"")
        seen.body = await reader.readexactly(int(seen.header("content-length") or 0))
        return seen
    return None


def _busy(seen: Seen, retry_after: str) -> bytes:
    """A 503 like that of the server, readable for the page."""
    body = b'{"detail":"unavailable","message":"Busy.","request_id":"proxy"}'
    lines = (
        "HTTP/1.1 503 Service Unavailable",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"Access-Control-Allow-Origin: {seen.header('origin') or '*'}",
        "Access-Control-Expose-Headers: Retry-After",
        f"Retry-After: {retry_after}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def open_proxy(upstream: str) -> AsyncIterator[Proxy]:
    proxy = Proxy(upstream)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        proxy.go_offline()
        server.close()
