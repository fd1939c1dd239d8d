"""Limits in this process: constant memory a key, a bounded number of keys.

Requests that come within one slot are counted together and bear the time of the last of them,
so nothing expires early. The state of a key is

    [used, count, opened, at, times, at, times, ...]

`used` is the sum of all `times`, `count` the limit, `opened` the start of the slot that still
takes requests, which is the last pair. A key seen once is only its time, an int: a flood of
addresses then makes no lists, each of which the garbage collector would visit.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hlas.limits.rules import Check, Refusal, Rule

_State = list[int]
_USED, _COUNT, _OPENED, _OLDEST = 0, 1, 2, 3

# Places that newcomers share when every key of a full table is at its limit.
_SHARED = 1024
# How many keys are looked at, at most, to find the least useful one.
_LOOKS = 32


def _first(rule: Rule, now: int) -> int | _State:
    # A limit of one is reached at once, and only a list can tell.
    return now if rule.count > 1 else [1, 1, now, now, 1]


def _expire(state: _State, horizon: int) -> None:
    """Drop what happened at `horizon` or before; the last pair stays, if only as a zero."""
    end = _OLDEST
    while state[end] <= horizon:
        state[_USED] -= state[end + 1]
        if end + 2 == len(state):
            state[-1] = 0
            break
        end += 2
    del state[_OLDEST:end]


def _newest(state: int | _State) -> int:
    return state if isinstance(state, int) else state[-2]


def _wait(state: _State, rule: Rule, now: int) -> int:
    """Nanoseconds until there is room for one more, if nobody else takes it."""
    surplus = state[_USED] - rule.count
    place = _OLDEST
    while surplus >= state[place + 1]:
        surplus -= state[place + 1]
        place += 2
    return state[place] + rule.window - now


def _add(state: _State, rule: Rule, now: int) -> None:
    state[_USED] += 1
    state[_COUNT] = rule.count
    if now - state[_OPENED] < rule.slot:
        state[-2] = now
        state[-1] += 1
    else:
        state[_OPENED] = now
        state += (now, 1)
        # Only here does a state grow, so only here must it shrink.
        _expire(state, now - rule.window)


class _Table:
    """The keys of one rule. Rules do not share places: addresses cannot push out tenants."""

    __slots__ = ("_hand", "_keys", "_max_keys", "shared", "states")

    def __init__(self, max_keys: int) -> None:
        self.states: dict[str, int | _State] = {}
        self.shared: dict[int, _State] = {}
        self._keys: list[str] = []
        self._hand = 0
        self._max_keys = max_keys

    def find_shared(self, key: str) -> _State | None:
        return self.shared.get(hash(key) % _SHARED)

    def record(self, key: str, rule: Rule, state: int | _State | None, now: int) -> None:
        """Count one more request at a key that is in this state."""
        if isinstance(state, list):
            _add(state, rule, now)
        elif state is None:
            self._insert(key, rule, now)
        elif now - state < rule.slot:
            self.states[key] = [2, rule.count, state, now, 2]
        elif now - state < rule.window:
            self.states[key] = [2, rule.count, now, state, 1, now, 1]
        else:
            self.states[key] = _first(rule, now)

    def _insert(self, key: str, rule: Rule, now: int) -> None:
        horizon = now - rule.window
        self._sweep(horizon)
        if len(self._keys) < self._max_keys or self._evict(horizon):
            self._keys.append(key)
            self.states[key] = _first(rule, now)
        else:
            _add(self.shared.setdefault(hash(key) % _SHARED, [0, 0, horizon]), rule, now)

    def _sweep(self, horizon: int) -> None:
        """Two looks for expired keys at each new one keep the table as small as its use."""
        for _ in range(min(2, len(self._keys))):
            self._hand = (self._hand + 1) % len(self._keys)
            if _newest(self.states[self._keys[self._hand]]) <= horizon:
                self._remove(self._hand)

    def _evict(self, horizon: int) -> bool:
        """Remove the least used of some keys, but never one that is at its limit."""
        victim, least = -1, 1.0
        for _ in range(_LOOKS):
            # Anywhere: neighbours came together, so they are alike.
            place = int(random.random() * len(self._keys))  # noqa: S311 - a sample, not a secret
            state = self.states[self._keys[place]]
            if isinstance(state, int) or _newest(state) <= horizon:
                victim = place
                break
            share = state[_USED] / state[_COUNT]
            if share < least:
                victim, least = place, share
        if victim >= 0:
            self._remove(victim)
        return victim >= 0

    def _remove(self, place: int) -> None:
        del self.states[self._keys[place]]
        last = self._keys.pop()
        if place < len(self._keys):
            self._keys[place] = last


_Place: TypeAlias = tuple[_Table, Rule, str, int | _State | None]


class MemoryLimiter:
    """The `_now` methods are the limiter; the async ones make it a Limiter."""

    def __init__(
        self, max_keys: int = 200_000, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`max_keys` is for each rule; `clock` tells nanoseconds."""
        self._max_keys = max_keys
        self._clock = clock
        self._last = clock()
        self._ahead = 0
        self._tables: dict[str, _Table] = {}

    async def consume(self, checks: Sequence[Check]) -> Refusal | None:
        return self.consume_now(checks)

    async def peek(self, checks: Sequence[Check]) -> Refusal | None:
        return self.peek_now(checks)

    async def aclose(self) -> None:
        """Nothing is held."""

    def consume_now(self, checks: Sequence[Check]) -> Refusal | None:
        now = self.now()
        places = self._places(checks)
        if places is None:
            refusal = self._refusal(checks, now)
            if refusal is None:
                self._record(checks, now)
            return refusal
        for table, rule, key, state in places:
            # As `record` does: most requests are of this kind, and a call is what costs.
            if isinstance(state, list):
                _add(state, rule, now)
            else:
                table.record(key, rule, state, now)
        return None

    def _places(self, checks: Sequence[Check]) -> list[_Place] | None:
        """Where to count a request that is certainly within its limits; each key is found once."""
        places: list[_Place] = []
        for rule, key in checks:
            table = self._tables.get(rule.table)
            if table is None:
                return None
            state = table.states.get(key)
            if state is None:
                if table.shared:
                    return None
            elif state.__class__ is int:
                if rule.count == 1:
                    return None
            elif state[_USED] >= rule.count:  # type: ignore[index]  # no int, which is cheaper to ask
                return None
            places.append((table, rule, key, state))
        return places

    def peek_now(self, checks: Sequence[Check]) -> Refusal | None:
        return self._refusal(checks, self.now())

    def record_now(self, checks: Sequence[Check]) -> None:
        """Count a request that was admitted elsewhere."""
        self._record(checks, self.now())

    def now(self) -> int:
        """When the clock steps back, time goes on from where it was."""
        now = self._clock() + self._ahead
        if now < self._last:
            self._ahead += self._last - now
            now = self._last
        self._last = now
        return now

    def _refusal(self, checks: Sequence[Check], now: int) -> Refusal | None:
        refused: Check | None = None
        longest = 0
        for check in checks:
            rule, key = check
            table = self._tables.get(rule.table)
            if table is None:
                continue
            state = table.states.get(key)
            if state is None and table.shared:
                state = table.find_shared(key)
            if state is None:
                continue
            if isinstance(state, int):
                if rule.count > 1 or state <= now - rule.window:
                    continue
                state = [1, 1, state, state, 1]
            elif state[_USED] < rule.count:
                continue
            else:
                _expire(state, now - rule.window)
                if state[_USED] < rule.count:
                    continue
            wait = _wait(state, rule, now)
            if wait > longest:
                refused, longest = check, wait
        return None if refused is None else Refusal.after(refused, longest)

    def _record(self, checks: Sequence[Check], now: int) -> None:
        for rule, key in checks:
            table = self._tables.get(rule.table)
            if table is None:
                table = self._tables[rule.table] = _Table(self._max_keys)
            table.record(key, rule, table.states.get(key), now)
