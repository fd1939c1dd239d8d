"""Rate limits in Redis: exact over any number of workers and hosts, by the clock of Redis.

Requests of one iteration of the event loop, and those that arrive during a round trip, share one
call of the script. During an outage of Redis the local limits take over; they have counted every
request that Redis admitted to this process.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from importlib.resources import files
from itertools import zip_longest
from typing import NamedTuple, TypeAlias

import orjson
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from hlas import log
from hlas.limits.memory import MemoryLimiter
from hlas.limits.rules import Check, Limit, Refusal, Rule

SCRIPT = files("hlas.limits").joinpath("consume.lua").read_text("utf-8")

_PREFIX = "hlas:limit:"
_BATCH = 128
_CACHED_REFUSALS = 10_000
# Minimum number of event loop iterations before a timeout is blamed on Redis.
_TURNS = 20
# Ends an outage: Redis has to be able to write, not only to respond.
_PROBE: Check = (Rule("ip", "probe", Limit(1_000_000_000, 60)), "probe")

# The number of the limit that is hit, or 0, and the wait in microseconds.
_Answer: TypeAlias = tuple[int, int]


class _Question(NamedTuple):
    checks: Sequence[Check]
    consume: bool
    # None: Redis is unavailable.
    answer: "asyncio.Future[_Answer | None]"

    def names(self) -> list[bytes]:
        return [f"{_PREFIX}{rule.table}:{key}".encode() for rule, key in self.checks]

    def figures(self) -> list[int | tuple[int, int, int]]:
        """The arguments of the script, with times in microseconds."""
        limits = [
            (rule.count, rule.window // 1000, -(-rule.slot // 1000)) for rule, _ in self.checks
        ]
        return [int(self.consume), *limits]


class _Hit(NamedTuple):
    """A cached refusal: until then the limit stays hit, so Redis need not be asked again."""

    surely_until: int
    perhaps_until: int


class RedisLimiter:
    """A Limiter in Redis with a local one as fallback."""

    def __init__(
        self,
        url: str,
        fallback: MemoryLimiter,
        *,
        timeout: float = 0.2,
        probe_every: float = 1.0,
        on_away: Callable[[bool], None] | None = None,
        script: str = SCRIPT,
    ) -> None:
        """`on_away` gets True when an outage of Redis starts and False when it ends."""
        self.away = False
        self._local = fallback
        self._timeout = timeout
        self._probe_every = probe_every
        self._on_away = on_away
        self._script = script
        self._digest = ""
        # No retries and no timeouts in the client: _evaluate has the only timeout.
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        self._waiting: list[_Question] = []
        self._sender: asyncio.Task[None] | None = None
        self._prober: asyncio.Task[None] | None = None
        self._back_at: int | None = None
        self._hits: dict[tuple[str, int, str], _Hit] = {}

    async def consume(self, checks: Sequence[Check]) -> Refusal | None:
        if self.away:
            return self._local.consume_now(checks)
        return await self._ask(checks, consume=True)

    async def peek(self, checks: Sequence[Check]) -> Refusal | None:
        if self.away:
            return self._local.peek_now(checks)
        return await self._ask(checks, consume=False)

    async def connect(self) -> bool:
        """Check on start whether Redis is available; if not, the prober keeps trying."""
        await self._ask([_PROBE], consume=True)
        return not self.away

    async def aclose(self) -> None:
        for task in (self._sender, self._prober):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        for question in self._waiting:
            if not question.answer.done():
                question.answer.set_result(None)
        await self._client.aclose()

    async def _ask(self, checks: Sequence[Check], *, consume: bool) -> Refusal | None:
        local, asked = self._local, self._local.now()
        # A restarted Redis may have lost counts that this process still has: both must admit.
        is_after_outage = self._since_outage(checks, asked)
        refusal = self._recall(checks, asked)
        if refusal is None and is_after_outage:
            refusal = local.peek_now(checks)
        if refusal is not None or not checks:
            return refusal
        answer = await self._send(checks, consume=consume)
        if answer is not None and answer[0]:
            return self._remember(checks[answer[0] - 1], answer[1] * 1000, asked)
        if not consume:
            return local.peek_now(checks) if answer is None else None
        if answer is None or is_after_outage:
            return local.consume_now(checks)
        local.record_now(checks)
        return None

    def _recall(self, checks: Sequence[Check], now: int) -> Refusal | None:
        if not self._hits:
            return None
        refused, longest = None, 0
        for check in checks:
            rule, key = check
            hit = self._hits.get((rule.table, rule.count, key))
            if hit is None:
                continue
            if hit.surely_until <= now:
                del self._hits[rule.table, rule.count, key]
            elif hit.perhaps_until - now > longest:
                refused, longest = check, hit.perhaps_until - now
        return None if refused is None else Refusal.after(refused, longest)

    def _remember(self, check: Check, wait: int, asked: int) -> Refusal:
        if len(self._hits) >= _CACHED_REFUSALS:
            self._hits.clear()
        rule, key = check
        # The script ran at some moment between `asked` and now.
        hit = _Hit(surely_until=asked + wait, perhaps_until=self._local.now() + wait)
        self._hits[rule.table, rule.count, key] = hit
        return Refusal.after(check, wait)

    def _since_outage(self, checks: Sequence[Check], now: int) -> bool:
        """Whether the window of a limit reaches back into the last outage."""
        back_at = self._back_at
        return back_at is not None and any(now - back_at < rule.window for rule, _ in checks)

    async def _send(self, checks: Sequence[Check], *, consume: bool) -> _Answer | None:
        answer: asyncio.Future[_Answer | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Question(checks, consume, answer))
        if self._sender is None or self._sender.done():
            # An empty context: its log lines do not belong to the request that started it.
            self._sender = asyncio.create_task(self._send_waiting(), context=Context())
        return await answer

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
            answers: list[_Answer | None] = []
            try:
                answers += await self._evaluate(batch)
            except Exception as error:  # noqa: BLE001 - whatever Redis does, requests continue
                self._start_outage(error)
                batch, self._waiting = batch + self._waiting, []
            finally:
                # Also when cancelled, so that no caller waits forever.
                for question, answer in zip_longest(batch, answers):
                    if not question.answer.done():
                        question.answer.set_result(answer)

    async def _evaluate(self, batch: list[_Question]) -> list[_Answer]:
        """Time out only after the event loop has run often enough to receive the response.

        A busy event loop can be slower than the timeout; that is not an outage of Redis.
        """
        trip = asyncio.create_task(self._round_trip(batch))
        try:
            for _ in range(_TURNS):
                done, _ = await asyncio.wait((trip,), timeout=self._timeout / _TURNS)
                if done:
                    return trip.result()
            raise TimeoutError
        finally:
            # Cancelling closes the connection, so a late response is not taken for another one.
            if not trip.done():
                trip.cancel()
                await asyncio.gather(trip, return_exceptions=True)

    async def _round_trip(self, batch: list[_Question]) -> list[_Answer]:
        try:
            answers = await self._execute(batch)
        except NoScriptError:
            # A restarted Redis has lost the script; nothing was consumed.
            self._digest = ""
            answers = await self._execute(batch)
        numbers = [int(number) for number in answers.split()]
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    async def _execute(self, batch: list[_Question]) -> bytes:
        if not self._digest:
            self._digest = await self._client.script_load(self._script)
        # Few arguments: encoding them is most of the cost of a round trip.
        keys = [key for question in batch for key in question.names()]
        figures = orjson.dumps([question.figures() for question in batch])
        answer: bytes = await self._client.evalsha(self._digest, len(keys), *keys, figures)
        return answer

    def _start_outage(self, error: Exception) -> None:
        self.away = True
        log.warning("limits_redis_away", error=type(error).__name__)
        if self._on_away is not None:
            self._on_away(self.away)
        self._prober = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        while self.away:
            await asyncio.sleep(self._probe_every)
            answer: asyncio.Future[_Answer | None]
            answer = asyncio.get_running_loop().create_future()
            try:
                await self._evaluate([_Question([_PROBE], consume=True, answer=answer)])
            except Exception:  # noqa: BLE001, S112 - logged once, when the outage started
                continue
            self._back_at = self._local.now()
            self.away = False
        log.info("limits_redis_back")
        if self._on_away is not None:
            self._on_away(self.away)
