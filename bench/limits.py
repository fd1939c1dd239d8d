"""The cost of three limits per request, side by side with the `limits` package.

Ours: one call, all or nothing. Theirs: test, then hit, for each of the three, with a moving
window, its most similar strategy. Run alone: python -m bench.limits
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import MovingWindowRateLimiter

from bench import service
from hlas.limits import Check, Limit, MemoryLimiter, Rule
from hlas.limits.redis import RedisLimiter
from limits import RateLimitItemPerHour

Row = dict[str, Any]
Keys = tuple[str, str, str]
Ask = Callable[[Keys], Awaitable[None]]

# The last one is the maximum number of keys of a rule in production.
KEYS = (10, 1_000, 50_000, 200_000)
# The package scans all keys repeatedly: with more keys it would take too long.
THEIR_KEYS = (10, 1_000, 50_000)
BATCH = 50
TURNS = 30
BATCHES_EACH = 20
PACED = 300
MOST = 1_000_000_000

RULES = (
    Rule("ip", "messages", Limit(MOST, 3600)),
    Rule("tenant", "messages", Limit(MOST, 3600)),
    Rule("conversation", "messages", Limit(MOST, 3600)),
)
ITEM = RateLimitItemPerHour(MOST)


def run() -> list[Row]:
    return asyncio.run(_run())


async def _run() -> list[Row]:
    async def wait(_: Keys) -> None: ...

    idle = await _measure_paced(wait, 1)
    rows = await _ours_in_memory(idle)
    rows += [await _theirs_in_memory(keys, idle) for keys in THEIR_KEYS]
    if service.REDIS:
        for waiting in (1, 64):
            with service.run_redis() as url:
                rows.append(await _ours_in_redis(url, waiting))
            with service.run_redis() as url:
                rows.append(await _theirs_in_redis(url, waiting))
    return rows


def _keys(number: int) -> Keys:
    """Half of the keys are addresses, half are conversations."""
    return (
        f"198.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
        f"tenant {number % 50}",
        f"01920000-0000-7000-8000-{number:012d}",
    )


def _batches(keys: int, batches: int) -> Iterator[list[Keys]]:
    """Keys as in requests: new strings, chosen at random."""
    random = Random(keys)
    for _ in range(batches):
        yield [_keys(random.randrange(max(1, keys // 2))) for _ in range(BATCH)]


def _checks(keys: Keys) -> Sequence[Check]:
    return tuple(zip(RULES, keys, strict=True))


async def _time(ask: Ask, batches: Iterable[list[Keys]]) -> list[float]:
    """Mean microseconds per call, for each batch; the best batch is that of an idle machine."""
    times = []
    for batch in batches:
        started = time.perf_counter()
        for each in batch:
            await ask(each)
        times.append((time.perf_counter() - started) / BATCH * 1e6)
    return times


async def _figures(ask: Ask, keys: int, times: list[float], idle: float) -> Row:
    """Adds the CPU time per request at 500 requests a second, minus that of an idle loop, because a
    limiter may also work in the background.
    """
    return {
        "us median": round(statistics.median(times), 1),
        "us best": round(min(times), 1),
        "processor us at 500/s": round(max(0.0, await _measure_paced(ask, keys) - idle)),
    }


async def _measure_paced(ask: Ask, keys: int) -> float:
    used = time.process_time()
    for batch in _batches(keys, PACED // BATCH):
        for each in batch:
            await ask(each)
            await asyncio.sleep(0.002)
    return (time.process_time() - used) / PACED * 1e6


def _row(store: str, keys: int, waiting: int, figures: Row) -> Row:
    return {"limiter": store, "keys": keys, "at once": waiting, **figures}


async def _ours_in_memory(idle: float) -> list[Row]:
    """Few and many keys take turns, so that a slow moment of the machine affects all."""
    kinds = [("hlas, memory", keys, 1) for keys in KEYS]
    # Visitors with requests in two slots use more memory.
    kinds.append(("hlas, memory, 2 slots a key", max(KEYS), 2))
    asks = [_our_request(keys, slots) for _, keys, slots in kinds]
    batches = [_batches(keys, TURNS * BATCHES_EACH) for _, keys, _ in kinds]
    times: list[list[float]] = [[] for _ in kinds]
    for _ in range(TURNS):
        for place, ask in enumerate(asks):
            times[place] += await _time(ask, islice(batches[place], BATCHES_EACH))
    return [
        _row(name, keys, 1, await _figures(ask, keys, taken, idle))
        for (name, keys, _), ask, taken in zip(kinds, asks, times, strict=True)
    ]


def _our_request(keys: int, slots: int) -> Ask:
    limiter = MemoryLimiter(max_keys=max(KEYS))
    for slot in range(slots):
        limiter._ahead += slot * RULES[0].slot  # noqa: SLF001 - instead of waiting for a minute
        for number in range(max(1, keys // 2)):
            limiter.consume_now(_checks(_keys(number)))
    of_ip, of_tenant, of_conversation = RULES

    async def ask(each: Keys) -> None:
        ip, tenant, conversation = each
        checks = ((of_ip, ip), (of_tenant, tenant), (of_conversation, conversation))
        assert await limiter.consume(checks) is None

    return ask


def _their_request(storage: Storage) -> Ask:
    limiter = MovingWindowRateLimiter(storage)

    async def ask(each: Keys) -> None:
        for key in each:
            assert await limiter.test(ITEM, key)
        for key in each:
            assert await limiter.hit(ITEM, key)

    return ask


async def _theirs_in_memory(keys: int, idle: float) -> Row:
    storage = MemoryStorage()
    for number in range(max(1, keys // 2)):
        for key in _keys(number):
            await storage.acquire_entry(ITEM.key_for(key), MOST, 3600)
    ask = _their_request(storage)
    figures = await _figures(ask, keys, await _time(ask, _batches(keys, 40)), idle)
    if storage.timer is not None:
        storage.timer.cancel()
    return _row("limits package, asyncio memory", keys, 1, figures)


async def _at_once(ask: Ask, waiting: int) -> Row:
    """Concurrent requests, as on a busy worker; the time is per request."""
    times = []
    requests = max(BATCH, waiting * 2)
    for batch in range(12):
        started = time.perf_counter()

        async def one(first: int, offset: int = batch * requests) -> None:
            for number in range(first, requests, waiting):
                await ask(_keys(offset + number))

        await asyncio.gather(*(one(first) for first in range(waiting)))
        times.append((time.perf_counter() - started) / requests * 1e6)
    return {"us median": round(statistics.median(times), 1), "us best": round(min(times), 1)}


async def _ours_in_redis(url: str, waiting: int) -> Row:
    limiter = RedisLimiter(url, MemoryLimiter(), timeout=30)
    assert await limiter.connect()

    async def ask(each: Keys) -> None:
        assert await limiter.consume(_checks(each)) is None

    figures = await _at_once(ask, waiting)
    assert not limiter.away
    await limiter.aclose()
    return _row("hlas, Redis", 1200, waiting, figures)


async def _theirs_in_redis(url: str, waiting: int) -> Row:
    storage = RedisStorage(f"async+redis+{url}", implementation="redispy")
    figures = await _at_once(_their_request(storage), waiting)
    bridge: Any = storage.bridge
    await bridge.get_connection().aclose()
    return _row("limits package, Redis", 1200, waiting, figures)


if __name__ == "__main__":
    for row in run():
        print("  ".join(f"{name}: {value}" for name, value in row.items()))
