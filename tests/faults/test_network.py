"""Bad networks: between visitors and the application, and between it and the database.

Fails with these defects planted: keys that are ignored (duplicates), and a writer that
retries messages without a key that a lost connection may have committed (500).
"""

import asyncio
import io
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import httpx
import pytest

from cables import Wire, open_cable, open_wire
from factories import make_settings, serve_app
from hlas.store.db import Database
from visitors import Visitor, arrive, find_losses

VISITORS = 8
SENDS = 12

Trouble = Callable[[Wire, random.Random], Coroutine[Any, Any, None]]


async def latency(wire: Wire, randomness: random.Random) -> None:
    """Every piece is delayed, by varying times."""
    while True:
        wire.latency_seconds = randomness.choice((0.0, 0.002, 0.02, 0.1))
        await asyncio.sleep(0.05)


async def slices(wire: Wire, randomness: random.Random) -> None:
    """A few bytes at a time: readers must not rely on packet boundaries."""
    while True:
        wire.slice_bytes = randomness.choice((1, 3, 7, 100))
        await asyncio.sleep(0.05)


async def cuts(wire: Wire, randomness: random.Random) -> None:
    while True:
        await asyncio.sleep(randomness.uniform(0.02, 0.2))
        wire.cut()


async def losses_of_answers(wire: Wire, randomness: random.Random) -> None:
    """The worst case: the message is stored, and the response is lost."""
    while True:
        await asyncio.sleep(randomness.uniform(0.02, 0.2))
        wire.lose_next_answer = True


async def resets(wire: Wire, randomness: random.Random) -> None:
    while True:
        await asyncio.sleep(randomness.uniform(0.02, 0.2))
        wire.reset()


async def everything(wire: Wire, randomness: random.Random) -> None:
    """All faults in turn, with just enough time in between to connect."""
    while True:
        wire.latency_seconds = randomness.choice((0.0, 0.001))
        wire.slice_bytes = randomness.choice((0, 50, 500))
        await asyncio.sleep(randomness.uniform(0.2, 0.6))
        randomness.choice((wire.cut, wire.reset))()
        wire.lose_next_answer = True


alone = [
    pytest.param(one, marks=pytest.mark.soak)
    for one in (latency, slices, cuts, losses_of_answers, resets)
]
troubles = pytest.mark.parametrize("trouble", [everything, *alone])


async def send_all(client: httpx.AsyncClient, visitors: list[Visitor]) -> None:
    """Send with keys and retries, like the widget; no response may be a 500."""

    async def visit(number: int, visitor: Visitor) -> None:
        for turn in range(SENDS):
            key = f"key-{number}-{turn}"
            answer = await visitor.send(client, key, key)
            assert answer.status_code == 200, answer.text

    async with asyncio.timeout(150):
        await asyncio.gather(*(visit(number, one) for number, one in enumerate(visitors)))


async def endure(wire: Wire, trouble: Trouble, sending: Awaitable[None]) -> None:
    troubling = asyncio.create_task(trouble(wire, random.Random(trouble.__name__)))
    try:
        await sending
    finally:
        troubling.cancel()
        await asyncio.gather(troubling, return_exceptions=True)


@troubles
async def test_between_client_and_application(
    trouble: Trouble, database_url: str, operators: Database, logs: io.BytesIO
) -> None:
    """Edge case 8: delayed, fragmented, cut, reset: acknowledged is stored once, no gap."""
    async with (
        serve_app(make_settings(database_url), logs) as live,
        open_wire(live.url) as wire,
        httpx.AsyncClient(base_url=wire.url, timeout=20) as client,
    ):
        visitors = await arrive(live.client, operators, VISITORS)
        await endure(wire, trouble, send_all(client, visitors))
        assert not [event for event in live.events("request") if event["status"] >= 500]
        assert (await live.client.get("/ready")).status_code == 200
    assert await find_losses(operators, visitors) == []


@troubles
async def test_between_application_and_database(
    trouble: Trouble, database_url: str, operators: Database, logs: io.BytesIO
) -> None:
    """Edge cases 4, 7 and 43: the same towards the database: at worst a 503, never a 500."""
    async with (
        open_cable(database_url) as cable,
        serve_app(make_settings(cable.url), logs) as live,
    ):
        visitors = await arrive(live.client, operators, VISITORS)
        await endure(cable, trouble, send_all(live.client, visitors))
        statuses = {event["status"] for event in live.events("request")}
        assert statuses <= {200, 409, 503}, statuses
    assert await find_losses(operators, visitors) == []
