"""The same properties for both stores, with random arrivals.

Time is virtual, in Redis too: the line of the script that reads the server's clock is replaced by
one that reads a list set by the test. The rest of the script is that of production.
"""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hlas.limits import Check, Limit, Limiter, MemoryLimiter, Rule, Scope
from hlas.limits.redis import SCRIPT, RedisLimiter
from hlas.limits.rules import SLOTS
from redis_servers import RedisServer, run_redis

MICROSECONDS = 1_000_000
SERVER_CLOCK = "redis.call('TIME')"
VIRTUAL_CLOCK = "redis.call('LRANGE', 'virtual-time', 0, 1)"


class World:
    """A limiter and its clock, in microseconds."""

    limiter: Limiter

    def __init__(self, server: RedisServer | None) -> None:
        self._client = Redis.from_url(server.url) if server else None
        self._url = server.url if server else ""
        self.now = 0

    async def reset(self) -> None:
        """An empty store at an odd time, so that nothing is aligned by chance."""
        await self.close()
        await self.set(1_000_000_007_123_457)
        local = MemoryLimiter(clock=lambda: self.now * 1000)
        if self._client is None:
            self.limiter = local
            return
        assert SCRIPT.count(SERVER_CLOCK) == 1
        script = SCRIPT.replace(SERVER_CLOCK, VIRTUAL_CLOCK)
        await self._client.flushdb()
        await self.set(self.now)
        self.limiter = RedisLimiter(self._url, local, script=script, timeout=30)

    async def set(self, now: int) -> None:
        self.now = now
        if self._client is not None:
            seconds, rest = divmod(now, MICROSECONDS)
            await self._client.delete("virtual-time")
            await self._client.rpush("virtual-time", seconds, rest)

    async def advance(self, seconds: float) -> None:
        await self.set(self.now + int(seconds * MICROSECONDS))

    async def close(self) -> None:
        limiter = getattr(self, "limiter", None)
        if limiter is not None:
            assert not getattr(limiter, "away", False), "the law was tried on the wrong store"
            await limiter.aclose()

    async def end(self) -> None:
        await self.close()
        if self._client is not None:
            await self._client.aclose()


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with run_redis() as server:
        yield server


@pytest_asyncio.fixture(scope="module", params=["memory", "redis"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    made = World(server)
    await made.reset()
    yield made
    await made.end()


def rule(count: int, seconds: int = 60, scope: Scope = "ip", route: str = "messages") -> Rule:
    return Rule(scope, route, Limit(count, seconds))


laws = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
counts = st.integers(1, 8)
# A second would do in memory; a key in Redis really expires, also on a slow machine.
windows = st.sampled_from([60, 3600, 86400])
# Gaps as fractions of the window: bursts, around a slot, around a window, and others.
gaps = st.lists(
    st.one_of(
        st.just(0.0),
        st.floats(0, 2 / SLOTS),
        st.floats(1 - 2 / SLOTS, 1),
        st.sampled_from([1 / SLOTS, 1 / (2 * SLOTS), 1 - 1 / SLOTS, 1.0, 0.999999, 1.000001]),
        st.floats(0, 1.5),
    ),
    min_size=1,
    max_size=60,
)


@laws
@given(count=counts, seconds=windows, gaps=gaps)
async def test_no_window_admits_more(
    world: World, count: int, seconds: int, gaps: list[float]
) -> None:
    """Edge case 22: no window admits more than N, and a refusal has N requests before it."""
    await world.reset()
    checks = [(rule(count, seconds), "a")]
    admitted: list[int] = []
    window = seconds * MICROSECONDS
    slot = window // SLOTS + 1
    for gap in gaps:
        await world.advance(gap * seconds)
        if await world.limiter.consume(checks) is None:
            admitted.append(world.now)
        else:
            recent = [at for at in admitted if at > world.now - window - slot]
            assert len(recent) >= count
    for first, over in zip(admitted, admitted[count:], strict=False):
        assert over - first >= window


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
async def test_requests_of_one_slot_do_not_expire_early(world: World, share: float) -> None:
    """Edge case 22: requests that are counted together expire with the last of them."""
    await world.reset()
    checks = [(rule(3), "a")]
    assert await world.limiter.consume(checks) is None
    await world.advance(share * 60 / SLOTS)
    last = world.now
    assert await world.limiter.consume(checks) is None
    await world.set(last + 60 * MICROSECONDS - 1)
    assert await world.limiter.consume(checks) is None
    assert await world.limiter.consume(checks) is not None
    await world.set(last + 60 * MICROSECONDS)
    assert await world.limiter.consume(checks) is None
    assert await world.limiter.consume(checks) is None
    assert await world.limiter.consume(checks) is not None


@laws
@given(count=counts, seconds=windows, gaps=gaps)
async def test_obeying_retry_after_succeeds(
    world: World, count: int, seconds: int, gaps: list[float]
) -> None:
    """Edge case 21: a refusal has whole seconds, and a client that waits that long passes."""
    await world.reset()
    checks = [(rule(count, seconds), "a")]
    for gap in gaps:
        await world.advance(gap * seconds)
        refusal = await world.limiter.consume(checks)
        if refusal is not None:
            assert 1 <= refusal.retry_after <= seconds
            await world.advance(refusal.retry_after)
            assert await world.limiter.consume(checks) is None


@pytest.mark.parametrize("count", [1, 2, 30, 500])
async def test_n_pass_and_the_next_is_refused(world: World, count: int) -> None:
    """Edge case 21: N in a row pass on an idle key, and again after an idle window."""
    await world.reset()
    checks = [(rule(count), "a")]
    for _ in range(3):
        for _ in range(count):
            assert await world.limiter.consume(checks) is None
        for _ in range(3):
            refusal = await world.limiter.consume(checks)
            assert refusal is not None
            assert refusal.retry_after == 60
        await world.advance(60)


requests = st.lists(
    st.tuples(
        st.floats(0, 0.4),
        st.sampled_from(["a1", "a2"]),
        st.sampled_from(["t1", "t2"]),
        st.sampled_from(["c1", "c2", "c3"]),
    ),
    min_size=1,
    max_size=60,
)


@laws
@given(requests=requests, of_ip=counts, of_tenant=counts, of_conversation=counts)
async def test_a_refusal_consumes_nothing(
    world: World,
    requests: list[tuple[float, str, str, str]],
    of_ip: int,
    of_tenant: int,
    of_conversation: int,
) -> None:
    """Edge case 23: all limits are consumed or none; a refusal changes nothing."""
    await world.reset()
    rules = (
        rule(of_ip, 60, "ip"),
        rule(of_tenant, 3600, "tenant"),
        rule(of_conversation, 60, "conversation"),
    )
    admitted: dict[tuple[Rule, str], list[int]] = {}
    for gap, *keys in requests:
        await world.advance(gap * 60)
        checks: list[Check] = list(zip(rules, keys, strict=True))
        refusal = await world.limiter.consume(checks)
        if refusal is None:
            for check in checks:
                admitted.setdefault(check, []).append(world.now)
        else:
            hit, window = refusal.rule, refusal.rule.window // 1000
            recent = [
                at
                for at in admitted.get((hit, refusal.key), [])
                if at > world.now - window - window // SLOTS - 1
            ]
            assert len(recent) >= hit.count, "refused for what refused requests have consumed"
    for (used, _), times in admitted.items():
        for first, over in zip(times, times[used.count :], strict=False):
            assert over - first >= used.window // 1000


async def test_a_refusal_by_the_last_limit_leaves_the_first(world: World) -> None:
    """Edge case 23: refusals by the conversation's limit do not consume the address's limit."""
    await world.reset()
    address, conversation = rule(5), rule(1, scope="conversation")
    assert await world.limiter.consume([(address, "a"), (conversation, "c")]) is None
    for _ in range(20):
        refusal = await world.limiter.consume([(address, "a"), (conversation, "c")])
        assert refusal is not None
        assert refusal.rule == conversation
    for _ in range(4):
        assert await world.limiter.consume([(address, "a")]) is None
    assert await world.limiter.consume([(address, "a")]) is not None


async def test_peek_predicts_and_consumes_nothing(world: World) -> None:
    """Peeking returns what consuming would, and consumes nothing."""
    await world.reset()
    checks = [(rule(2), "a")]
    for _ in range(2):
        for _ in range(5):
            assert await world.limiter.peek(checks) is None
        assert await world.limiter.consume(checks) is None
    refusal = await world.limiter.peek(checks)
    assert refusal is not None
    assert refusal == await world.limiter.consume(checks)
    assert await world.limiter.peek([]) is None
    assert await world.limiter.consume([]) is None


@laws
@given(
    back=st.integers(1, 30 * 86400 * MICROSECONDS),
    used=st.integers(1, 5),
    refused=st.integers(0, 3),
    gap=st.sampled_from([0, 0.3, 1]),
)
@example(back=3600 * MICROSECONDS, used=4, refused=0, gap=0)
async def test_a_clock_that_steps_back_locks_nobody_out(
    world: World, back: int, used: int, refused: int, gap: float
) -> None:
    """Edge case 29: after a step back nobody waits longer than a window, or passes too early."""
    await world.reset()
    checks = [(rule(5), "a")]
    for _ in range(used):
        assert await world.limiter.consume(checks) is None
        await world.advance(gap)
    await world.set(world.now - back)
    # Usage is kept: no time is known to have passed.
    for _ in range(5 - used):
        assert await world.limiter.consume(checks) is None
    for _ in range(refused):
        assert await world.limiter.consume(checks) is not None
        await world.advance(0.5)
    refusal = await world.limiter.consume(checks)
    assert refusal is not None
    assert refusal.retry_after <= 60
    await world.advance(refusal.retry_after)
    assert await world.limiter.consume(checks) is None


async def test_refusals_after_a_step_back_do_not_restart_the_wait(world: World) -> None:
    """Edge case 29: a client that keeps retrying passes no later than one that waits."""
    await world.reset()
    checks = [(rule(1), "a")]
    assert await world.limiter.consume(checks) is None
    await world.set(world.now - 3600 * MICROSECONDS)
    if isinstance(world.limiter, RedisLimiter):
        world.limiter._hits.clear()
    for _ in range(60):
        assert await world.limiter.consume(checks) is not None
        if isinstance(world.limiter, RedisLimiter):
            world.limiter._hits.clear()
        await world.advance(1)
    assert await world.limiter.consume(checks) is None


async def test_the_memory_of_a_key_in_redis_is_bounded(redis_server: RedisServer) -> None:
    """Edge case 27: a busy key has at most one pair per slot in Redis too."""
    world = World(redis_server)
    await world.reset()
    checks = [(rule(1_000_000), "a")]
    for _ in range(600):
        await world.advance(0.35)
        assert await world.limiter.consume(checks) is None
    assert world._client is not None
    assert await world._client.strlen("hlas:limit:ip:messages:60:a") < 16 * (SLOTS + 3)
    await world.end()
