"""A client that asks many questions at once and keeps when each piece of the answers came."""

import asyncio
import re
import time
from dataclasses import dataclass, field

TIMEOUT_SECONDS = 120.0
DONE = b"data: [DONE]"
_DELTA = re.compile(rb'"type":"text-delta","id":"text","delta":"([^"]*)"')


@dataclass
class Answer:
    """The bytes of a stream, each piece with its time; times are monotonic, in ns."""

    ended_at: int = 0
    pieces: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def raw(self) -> bytes:
        return b"".join(data for _, data in self.pieces)

    def list_words(self) -> list[bytes]:
        return b"".join(_DELTA.findall(self.raw)).split()

    @property
    def first_word_at(self) -> int:
        seen = b""
        for at, data in self.pieces:
            seen += data
            if _DELTA.search(seen):
                return at
        raise RuntimeError(f"no word came: {seen[:500]!r}")


class _Stream(asyncio.Protocol):
    """One request. Pieces are looked at when all is over, so that looking delays nothing."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.answer.pieces.append((now, data))
        self._tail = self._tail[-len(DONE) :] + data
        if DONE in self._tail and not self.ended.done():
            self.answer.ended_at = now
            self.ended.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            raw = self.answer.raw[:500]
            self.ended.set_exception(error or ConnectionResetError(f"no answer: {raw!r}"))


async def ask_at_once(port: int, requests: list[str]) -> tuple[list[Answer], float]:
    """Send all of them at the same moment; returns the answers and the seconds until the last."""
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(_Stream, "127.0.0.1", port) for _ in requests]
    started = time.monotonic_ns()
    for (transport, _), request in zip(opened, requests, strict=True):
        transport.write(request.encode())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*(stream.ended for _, stream in opened))
    for transport, _ in opened:
        transport.abort()
    answers = [stream.answer for _, stream in opened]
    return answers, (max(answer.ended_at for answer in answers) - started) / 1e9
