"""A small HTTP/1.1 load generator for machines without wrk; it uses more CPU."""

import asyncio
import random
import secrets
import time

KEY = "\1"


class _Connection(asyncio.Protocol):
    """One request at a time; responses are delimited by Content-Length only."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._buffer = b""
        self._answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(rest) >= length and self._answer is not None:
            self._buffer = b""
            self._answer.set_result(int(head[9:12]))

    async def send(self, request: bytes) -> int:
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


async def connect(port: int, source: str = "127.0.0.1") -> _Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        _Connection, "127.0.0.1", port, local_addr=(source, 0)
    )
    return connection


async def run_once(port: int, requests: list[str], source: str) -> list[int]:
    """Send each request once; returns the statuses."""
    connection = await connect(port, source)
    statuses = [await connection.send(request.encode()) for request in requests]
    connection.transport.close()
    return statuses


async def run(
    port: int,
    requests: list[str],
    connections: int,
    seconds: float,
    delay_ms: int,
    source: str = "127.0.0.1",
) -> tuple[int, int, int, float, float, float]:
    """Send for some seconds; returns requests, refused, broken, seconds, p50 and p99."""
    prefix = secrets.token_hex(2)
    times: list[float] = []
    counts = {"refused": 0, "broken": 0, "sent": 0}
    started = time.perf_counter()

    async def visitor() -> None:
        connection = await connect(port, source)
        while (now := time.perf_counter()) < started + seconds:
            if delay_ms:
                await asyncio.sleep(random.uniform(0, delay_ms / 500))
                now = time.perf_counter()
            counts["sent"] += 1
            number = counts["sent"]
            key = f"{random.getrandbits(32):08x}-{prefix}-4000-8000-{number:012x}"
            request = requests[number % len(requests)].replace(KEY, key, 1)
            try:
                status = await connection.send(request.encode())
            except OSError:
                counts["broken"] += 1
                break
            times.append(time.perf_counter() - now)
            counts["refused"] += status >= 400
        connection.transport.close()

    await asyncio.gather(*(visitor() for _ in range(connections)))
    elapsed = time.perf_counter() - started
    times.sort()
    p50, p99 = (times[int(len(times) * share)] if times else 0.0 for share in (0.5, 0.99))
    return len(times), counts["refused"], counts["broken"], elapsed, p50, p99
