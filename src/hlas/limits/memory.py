"""Rate limits of one process: exact sliding windows over a bounded number of keys."""

import random
import time
from collections.abc import Callable, Sequence

from hlas.limits.rules import Check, Refusal, Rule

# Windows shared by new keys when every key of a full table is at its limit.
SHARED = 1024
# Maximum number of keys sampled to find one to evict.
_SAMPLES = 32


class Window:
    """The usage of one key.

    Requests within one slot are counted together with the time of the last of them, so nothing
    expires early. `slots` is a flat list, oldest first: time, count, time, count, ...
    """

    __slots__ = ("closes", "count", "slots", "used")

    def __init__(self) -> None:
        self.used = 0
        self.count = 0
        self.closes = 0
        self.slots: list[int] = []

    def copy(self) -> "Window":
        twin = Window()
        twin.used, twin.count, twin.closes = self.used, self.count, self.closes
        twin.slots = self.slots.copy()
        return twin

    def is_expired(self, horizon: int) -> bool:
        return not self.slots or self.slots[-2] <= horizon

    def wait(self, rule: Rule, now: int) -> int:
        """Return the nanoseconds until one more request is admitted; 0: now."""
        if self.used < rule.count:
            return 0
        self._expire(now - rule.window)
        surplus = self.used - rule.count
        if surplus < 0:
            return 0
        # Eviction spares a key at its limit, even after the limit was lowered.
        self.count = rule.count
        place = 0
        while surplus >= self.slots[place + 1]:
            surplus -= self.slots[place + 1]
            place += 2
        return self.slots[place] + rule.window - now

    def add(self, rule: Rule, now: int) -> None:
        if now >= self.closes:
            # The list grows only here, so it is also shortened here.
            self._expire(now - rule.window)
            self.slots += (now, 0)
            self.closes = now + rule.slot
        self.slots[-2] = now
        self.slots[-1] += 1
        self.used += 1
        self.count = rule.count

    def _expire(self, horizon: int) -> None:
        """Drop requests at or before `horizon`."""
        end = 0
        while end < len(self.slots) and self.slots[end] <= horizon:
            self.used -= self.slots[end + 1]
            end += 2
        del self.slots[:end]


class Table:
    """The keys of one rule. Each rule has its own table, so addresses cannot evict tenants."""

    def __init__(self, max_keys: int) -> None:
        self.windows: dict[str, Window] = {}
        self.shared: dict[int, Window] = {}
        # The same keys as a list, for random sampling.
        self._keys: list[str] = []
        self._hand = 0
        self._max_keys = max_keys

    def find(self, key: str) -> Window | None:
        window = self.windows.get(key)
        if window is None and self.shared:
            window = self.shared.get(hash(key) % SHARED)
        return window

    def record(self, key: str, rule: Rule, now: int) -> None:
        window = self.windows.get(key) or self._insert(key, now - rule.window)
        window.add(rule, now)

    def _insert(self, key: str, horizon: int) -> Window:
        """Create the window of a new key, or use a shared one if the table is full."""
        self._sweep(horizon)
        place = hash(key) % SHARED
        held = self.shared.get(place)
        if held is not None and held.is_expired(horizon):
            held = None
            del self.shared[place]
        if len(self._keys) >= self._max_keys and not self._evict(horizon):
            return self.shared.setdefault(place, Window())
        # A key that used a shared window before keeps the usage of that window.
        window = self.windows[key] = held.copy() if held else Window()
        self._keys.append(key)
        return window

    def _sweep(self, horizon: int) -> None:
        """Examine two keys on each insert and drop them if they have expired."""
        if self.shared:
            place, window = next(iter(self.shared.items()))
            if window.is_expired(horizon):
                del self.shared[place]
        for _ in range(min(2, len(self._keys))):
            self._hand = (self._hand or len(self._keys)) - 1
            if self.windows[self._keys[self._hand]].is_expired(horizon):
                self._remove(self._hand)

    def _evict(self, horizon: int) -> bool:
        """Remove the least used of some sampled keys, but never one that is at its limit."""
        victim, least = -1, 1.0
        for _ in range(_SAMPLES):
            # Sampled at random: neighbours were inserted together and have similar usage.
            place = int(random.random() * len(self._keys))  # noqa: S311  # a sample, not a secret
            window = self.windows[self._keys[place]]
            share = 0.0 if window.is_expired(horizon) else window.used / window.count
            if share < least:
                victim, least = place, share
                if window.used == 1:
                    break
        if victim >= 0:
            self._remove(victim)
        return victim >= 0

    def _remove(self, place: int) -> None:
        del self.windows[self._keys[place]]
        last = self._keys.pop()
        if place < len(self._keys):
            self._keys[place] = last


class MemoryLimiter:
    """A Limiter in memory. The async methods only wrap the synchronous `_now` methods."""

    def __init__(
        self, max_keys: int = 200_000, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`max_keys` applies to each rule; `clock` returns nanoseconds."""
        self._max_keys = max_keys
        self._clock = clock
        self._last = clock()
        self._ahead = 0
        self._tables: dict[str, Table] = {}

    async def consume(self, checks: Sequence[Check]) -> Refusal | None:
        return self.consume_now(checks)

    async def peek(self, checks: Sequence[Check]) -> Refusal | None:
        return self.peek_now(checks)

    async def aclose(self) -> None:
        """There is nothing to close."""

    def consume_now(self, checks: Sequence[Check]) -> Refusal | None:
        now = self.now()
        known: list[tuple[Window, Rule]] = []
        for rule, key in checks:
            table = self._tables.get(rule.table)
            window = table.windows.get(key) if table is not None else None
            if window is None or window.used >= rule.count:
                # A new key, or one that may be at its limit.
                refusal = self.peek_now(checks)
                if refusal is None:
                    self.record_now(checks)
                return refusal
            known.append((window, rule))
        for window, rule in known:
            window.add(rule, now)
        return None

    def peek_now(self, checks: Sequence[Check]) -> Refusal | None:
        now = self.now()
        refused: Check | None = None
        longest = 0
        for check in checks:
            rule, key = check
            table = self._tables.get(rule.table)
            window = table.find(key) if table is not None else None
            if window is not None and window.used >= rule.count:
                wait = window.wait(rule, now)
                if wait > longest:
                    refused, longest = check, wait
        return None if refused is None else Refusal.after(refused, longest)

    def record_now(self, checks: Sequence[Check]) -> None:
        """Count an admitted request, whoever admitted it."""
        now = self.now()
        for rule, key in checks:
            table = self._tables.get(rule.table)
            if table is None:
                table = self._tables[rule.table] = Table(self._max_keys)
            table.record(key, rule, now)

    def now(self) -> int:
        """Return the time; when the clock steps back, continue from the last value."""
        now = self._clock() + self._ahead
        if now < self._last:
            self._ahead += self._last - now
            now = self._last
        self._last = now
        return now
