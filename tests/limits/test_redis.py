"""Limits in Redis: several workers, outages, a server that does not respond."""

import asyncio
import io
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from hlas import log
from hlas.limits import Check, Limit, Limiter, MemoryLimiter, Refusal, Rule, Scope
from hlas.limits.redis import RedisLimiter
from log_scan import events
from redis_servers import RedisServer, run_redis


def rule(count: int, seconds: int = 60, scope: Scope = "ip") -> Rule:
    return Rule(scope, "messages", Limit(count, seconds))


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with run_redis() as server:
        yield server


@pytest_asyncio.fixture
async def client(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as made:
        await made.flushall()
        yield made


class Watched:
    """A limiter on the server's own clock, and its callbacks about Redis."""

    def __init__(self, url: str) -> None:
        self.away: list[bool] = []
        self.limiter = RedisLimiter(
            url, MemoryLimiter(), timeout=5, probe_every=0.05, on_away=self.away.append
        )

    async def back(self) -> None:
        async with asyncio.timeout(60):
            while self.limiter.away:  # noqa: ASYNC110 - the limiter has no event for tests
                await asyncio.sleep(0.02)

    async def admit(self, checks: Sequence[Check], times: int) -> int:
        answers = await asyncio.gather(*(self.limiter.consume(checks) for _ in range(times)))
        return sum(answer is None for answer in answers)


@pytest_asyncio.fixture
async def watch(redis_server: RedisServer) -> AsyncIterator[Callable[[], Watched]]:
    made: list[Watched] = []

    def new() -> Watched:
        made.append(Watched(redis_server.url))
        return made[-1]

    yield new
    for watched in made:
        await watched.limiter.aclose()


WORKER = textwrap.dedent("""
    import asyncio, sys
    from hlas.limits import Limit, MemoryLimiter, Rule
    from hlas.limits.redis import RedisLimiter

    async def main():
        limiter = RedisLimiter(sys.argv[1], MemoryLimiter(), timeout=30)
        checks = [(Rule("ip", "messages", Limit(150, 3600)), "a")]
        await limiter.connect()
        print("ready", flush=True)
        sys.stdin.readline()
        answers = await asyncio.gather(*(limiter.consume(checks) for _ in range(200)))
        assert not limiter.away
        print(sum(answer is None for answer in answers))
        await limiter.aclose()

    asyncio.run(main())
""")


def test_several_workers_share_one_limit(redis_server: RedisServer, client: Redis) -> None:
    """Edge case 28: four processes, 800 requests at once, a limit of 150: exactly 150 pass."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, redis_server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    admitted = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        output, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        admitted.append(int(output))
    assert sum(admitted) == 150


async def test_keys_in_redis_expire_by_themselves(
    client: Redis, watch: Callable[[], Watched]
) -> None:
    """Every key in Redis expires, soon after its window."""
    watched = watch()
    await watched.limiter.consume([(rule(5), "a"), (rule(5, 3600, "tenant"), "t")])
    left = {key.decode(): await client.pttl(key) async for key in client.scan_iter("*")}
    assert set(left) == {"hlas:limit:ip:messages:60:a", "hlas:limit:tenant:messages:3600:t"}
    assert 0 < left["hlas:limit:ip:messages:60:a"] <= 61_000
    assert 0 < left["hlas:limit:tenant:messages:3600:t"] <= 3_601_000


async def test_a_script_that_redis_forgot_is_loaded_again(
    client: Redis, watch: Callable[[], Watched]
) -> None:
    """SCRIPT FLUSH, or a failover to a server without the script, is not an outage."""
    watched = watch()
    assert await watched.limiter.connect()
    await client.script_flush()
    assert await watched.admit([(rule(5), "a")], 20) == 5
    assert not watched.away


async def test_a_blocked_key_does_not_query_redis(
    client: Redis, watch: Callable[[], Watched]
) -> None:
    """A flood from a blocked address causes no load on Redis until its wait is over."""
    watched = watch()
    assert await watched.limiter.peek([(rule(3), "a")]) is None
    assert await watched.admit([(rule(3), "a")], 10) == 3
    assert await watched.limiter.peek([(rule(3), "a")]) is not None

    async def calls() -> int:
        figures: dict[str, dict[str, int]] = await client.info("commandstats")
        return figures["cmdstat_evalsha"]["calls"]

    before = await calls()
    assert await watched.admit([(rule(3), "a")], 500) == 0
    assert await calls() == before
    assert await watched.admit([(rule(3), "b")], 1) == 1
    assert await calls() == before + 1


async def test_redis_killed_and_back(
    redis_server: RedisServer, client: Redis, watch: Callable[[], Watched], logs: io.BytesIO
) -> None:
    """Edge case 28: after a kill local limits apply with one warning; then exact again."""
    watched, other = watch(), watch()
    checks = [(rule(20, 3600), "a")]
    assert await watched.admit(checks, 8) == 8
    redis_server.kill()
    # The eight still count locally, although the server has lost them.
    assert await watched.admit(checks, 7) == 7
    assert watched.limiter.away
    assert watched.away == [True]
    redis_server.start()
    await watched.back()
    assert watched.away == [True, False]
    assert await watched.admit(checks, 30) == 5
    fresh = [(rule(20, 3600), "fresh")]
    both = await asyncio.gather(watched.admit(fresh, 30), other.admit(fresh, 30))
    assert sum(both) == 20
    told = [entry for entry in events(logs) if entry["event"].startswith("limits_redis")]
    assert [(entry["event"], entry["level"]) for entry in told] == [
        ("limits_redis_away", "warning"),
        ("limits_redis_back", "info"),
    ]


async def test_a_hanging_redis_is_waited_for_once(
    redis_server: RedisServer, client: Redis, watch: Callable[[], Watched]
) -> None:
    """Edge case 28: while Redis hangs, requests are answered at once, by the local limits."""
    watched = watch()
    watched.limiter._timeout = 0.1
    checks = [(rule(5, 3600), "a")]
    assert await watched.admit(checks, 1) == 1
    assert redis_server.process is not None
    redis_server.process.send_signal(signal.SIGSTOP)
    try:
        assert await watched.admit(checks, 2) == 2
        assert watched.limiter.away
        assert answer_at_once(watched.limiter, checks) is None
        assert answer_at_once(watched.limiter, checks) is None
        assert answer_at_once(watched.limiter, checks) is not None
    finally:
        redis_server.process.send_signal(signal.SIGCONT)
    watched.limiter._timeout = 5
    await watched.back()
    assert watched.away == [True, False]
    # Late responses are not taken for those of later requests.
    for number in range(3):
        assert await watched.admit([(rule(5), f"later {number}")], 20) == 5


def answer_at_once(limiter: Limiter, checks: Sequence[Check]) -> Refusal | None:
    """Consume in a single step; fails if the coroutine waits for anything."""
    coroutine = limiter.consume(checks)
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    answer: Refusal | None = end.value.value
    return answer


async def test_a_redis_that_cannot_write_is_away(
    client: Redis, watch: Callable[[], Watched]
) -> None:
    """A read-only replica or a full server responds but cannot store limits: an outage."""
    watched = watch()
    checks = [(rule(5), "a")]
    await client.config_set("min-replicas-to-write", 1)
    try:
        assert await watched.admit(checks, 20) == 5
        assert watched.away == [True]
        await asyncio.sleep(0.2)
        assert watched.limiter.away
    finally:
        await client.config_set("min-replicas-to-write", 0)
    await watched.back()
    assert watched.away == [True, False]


async def test_no_redis_at_the_start(tmp_path: Path, logs: io.BytesIO) -> None:
    """The service starts without Redis, logs it once, and its local limits apply."""
    watched = Watched(f"unix://{tmp_path}/nobody.sock")
    outside = log.enter({"tenant_id": "t"})
    assert not await watched.limiter.connect()
    assert await watched.admit([(rule(5), "a")], 20) == 5
    log.leave(outside)
    await watched.limiter.aclose()
    told = events(logs)
    assert [entry["event"] for entry in told] == ["limits_redis_away"]
    assert "nobody.sock" not in str(told)
    # The warning belongs to no request.
    assert "tenant_id" not in told[0]


async def test_closing_leaves_nobody_waiting(
    redis_server: RedisServer, watch: Callable[[], Watched]
) -> None:
    """Requests that wait for Redis while the limiter is closed get the local result."""
    watched = watch()
    assert redis_server.process is not None
    redis_server.process.send_signal(signal.SIGSTOP)
    try:
        asked = asyncio.gather(
            *(watched.limiter.consume([(rule(5, 3600), "a")]) for _ in range(300))
        )
        await asyncio.sleep(0.05)
        await watched.limiter.aclose()
        async with asyncio.timeout(60):
            answers = await asked
    finally:
        redis_server.process.send_signal(signal.SIGCONT)
    assert sum(answer is None for answer in answers) == 5


async def test_a_busy_event_loop_is_not_an_outage(watch: Callable[[], Watched]) -> None:
    """Edge case 28: an event loop busy for longer than the timeout keeps the limit exact."""
    watched = watch()
    watched.limiter._timeout = 0.05

    async def stall() -> None:
        while True:
            time.sleep(0.1)
            await asyncio.sleep(0)

    busy = asyncio.create_task(stall())
    assert await watched.admit([(rule(5), "a")], 20) == 5
    busy.cancel()
    assert watched.away == []
