"""A bad network between browser and server: it loses, delays and refuses what it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from urllib.parse import urlsplit


class Fault(Enum):
    PASS = auto()
    DELAY = auto()  # the answer comes late
    BUSY = auto()  # 503, the server hears nothing
    LOSE_REQUEST = auto()  # cut before the server hears anything
    LOSE_ANSWER = auto()  # the server has done its work, and the connection is cut
    HALVE_ANSWER = auto()  # cut in the middle of the answer


@dataclass
class Seen:
    """A request on its way through."""

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


@dataclass
class Proxy:
    upstream: str
    choose: Callable[[Seen], Fault] = lambda _: Fault.PASS
    url: str = ""
    delay_seconds: float = 0.2
    retry_after: str = "1"
    offline: bool = False
    requests: list[tuple[Seen, Fault]] = field(default_factory=list)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def go_offline(self) -> None:
        """Cut every connection, and every new one."""
        self.offline = True
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while not self.offline and (seen := await _read_request(reader)):
                fault = Fault.PASS if seen.method == "OPTIONS" else self.choose(seen)
                self.requests.append((seen, fault))
                if not await self._pass_on(seen, fault, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the other side is as unreliable as we are
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pass_on(self, seen: Seen, fault: Fault, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection lives on."""
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

    async def _ask(self, seen: Seen) -> bytes:
        address = urlsplit(self.upstream)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
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
    """503 as the server itself would say it, readable for the page."""
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
