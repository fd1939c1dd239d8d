"""Helpers for attacks: requests byte by byte, and every response, in order."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from raw_http import connect

# A request that ends a connection, sent after the requests under test.
LAST = b"GET /health HTTP/1.1\r\nHost: hlas.test\r\nConnection: close\r\n\r\n"
SECONDS = 20
AT_ONCE = 16

_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")


@dataclass(frozen=True)
class Answer:
    status: int
    head: bytes
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        body: dict[str, Any] = orjson.loads(self.body)
        return body

    @property
    def detail(self) -> str:
        return str(self.json.get("detail", ""))

    def header(self, name: str) -> list[str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return [
            value.strip()
            for key, _, value in (line.partition(":") for line in lines)
            if key.lower() == name
        ]


@dataclass(frozen=True)
class Attack:
    """Packets on one connection, and the statuses that are expected before it is closed."""

    name: str
    packets: tuple[bytes, ...]
    statuses: tuple[int, ...]
    # The methods of the requests, if one of them has a response without a body.
    heads: frozenset[int] = frozenset()


def attack(name: str, *packets: bytes, says: Sequence[int], heads: Iterable[int] = ()) -> Attack:
    return Attack(name, packets, tuple(says), frozenset(heads))


async def play(url: str, *packets: bytes, pause: float = 0.02) -> bytes:
    """Read everything until the server closes; a connection that stays open is an error."""
    reader, writer = await connect(url)
    received = b""
    try:
        with suppress(ConnectionError):
            for number, packet in enumerate(packets):
                if number:
                    await asyncio.sleep(pause)
                writer.write(packet)
                await writer.drain()
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionError):
                while piece := await reader.read(65536):
                    received += piece
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return received


def split(received: bytes, heads: Iterable[int] = ()) -> list[Answer]:
    """Split into responses; a byte that belongs to none is an error."""
    found: list[Answer] = []
    while received:
        head, separator, received = received.partition(b"\r\n\r\n")
        assert separator, f"no answer: {head[:200]!r}"
        assert head.startswith(b"HTTP/1.1 "), head[:200]
        status = int(head[9:12])
        length = _LENGTH.search(head.lower() + b"\r\n")
        has_body = status not in {100, 204, 304} and len(found) not in set(heads)
        size = int(length[1]) if length and has_body else 0
        assert len(received) >= size, f"cut off: {head!r}"
        found.append(Answer(status, head, received[:size]))
        received = received[size:]
    return found


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read the next response of a connection that stays open."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    length = _LENGTH.search(head.lower() + b"\r\n")
    body = await reader.readexactly(int(length[1]) if length else 0)
    return Answer(int(head[9:12]), head, body)


async def fire(url: str, attacks: Sequence[Attack]) -> None:
    """Run all attacks, a few at a time, and report every failure, not only the first."""
    slots = asyncio.Semaphore(AT_ONCE)
    wrong: list[str] = []

    async def one(tried: Attack) -> None:
        async with slots:
            try:
                _check(tried, split(await play(url, *tried.packets), tried.heads))
            except (AssertionError, TimeoutError) as error:
                wrong.append(f"{tried.name}: {error or 'stays open'}")

    assert len({tried.name for tried in attacks}) == len(attacks), "the same attack twice"
    await asyncio.gather(*(one(tried) for tried in attacks))
    assert not wrong, "\n".join(wrong)


def _check(tried: Attack, answers: list[Answer]) -> None:
    said = tuple(answer.status for answer in answers)
    assert said == tried.statuses, f"{said} instead of {tried.statuses}"
    for number, answer in enumerate(answers):
        if answer.status >= 400 and number not in tried.heads:
            assert {"detail", "message", "request_id"} <= set(answer.json), answer.body
