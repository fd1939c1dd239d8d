"""Limits in this process: little memory a key, a bounded number of keys."""

import time
from collections import defaultdict
from collections.abc import Callable, MutableSequence, Sequence
from typing import TypeAlias

from hlas.limits.rules import Check, Refusal, Rule
from hlas.limits.state import AT, CLOSES, COUNT, USED, wait
from hlas.limits.table import BITS, BUSY, PAGE_BITS, WORDS, Table, search

# A state or a page, the place in it, and what the key has used with this request.
_Place: TypeAlias = tuple[MutableSequence[int], int, int]
# What counts a request that is no mere addition.
_Count: TypeAlias = tuple[Callable[[int, Rule, int], None], int, Rule]


class MemoryLimiter:
    """The `_now` methods are the limiter; the async ones make it a Limiter."""

    def __init__(
        self, max_keys: int = 200_000, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """`max_keys` is for each rule; `clock` tells nanoseconds."""
        self._clock = clock
        self._last = clock()
        self._ahead = 0
        self._tables: defaultdict[str, Table] = defaultdict(lambda: Table(max_keys))

    async def consume(self, checks: Sequence[Check]) -> Refusal | None:
        return self.consume_now(checks)

    async def peek(self, checks: Sequence[Check]) -> Refusal | None:
        return self.peek_now(checks)

    async def aclose(self) -> None:
        """Nothing is held."""

    # Long, and it knows how a table is laid out: calls would be most of what it costs.
    def consume_now(self, checks: Sequence[Check]) -> Refusal | None:  # noqa: C901, PLR0912
        """Find every key, and write only when all are certainly within their limits."""
        now = self._clock() + self._ahead
        if now < self._last:
            now = self.now()
        self._last = now
        tables = self._tables
        places: list[_Place] = []
        others: list[_Count] = []
        for rule, name in checks:
            table = tables[rule.table]
            # No key is zero: that is an empty row.
            key = hash(name) or 1
            state = table.busy.get(key)
            if state is not None:
                used = state[USED] + 1
                # Also the one that reaches the limit: then its state has to say so.
                if used >= rule.count:
                    return self._consume_carefully(checks)
                if now < state[CLOSES]:
                    places.append((state, 0, used))
                    continue
            else:
                bits = key & BITS
                page = table.directory[bits & table.mask]
                place = (bits >> PAGE_BITS) * WORDS
                if page[place] != key:
                    place = search(page, place, key)
                if place >= 0:
                    used = page[place + USED] + 1
                    if used >= rule.count:
                        return self._consume_carefully(checks)
                    if used < BUSY and now < page[place + CLOSES]:
                        places.append((page, place, used))
                        continue
                elif table.shared:
                    return self._consume_carefully(checks)
                else:
                    others.append((table.welcome, key, rule))
                    continue
            others.append((table.record, key, rule))
        for row, place, used in places:
            row[place + USED] = used
            row[place + AT] = now
        # Only now, because it may move rows.
        for count, key, rule in others:
            count(key, rule, now)
        return None

    def _consume_carefully(self, checks: Sequence[Check]) -> Refusal | None:
        refusal = self.peek_now(checks)
        if refusal is None:
            self.record_now(checks)
        return refusal

    def peek_now(self, checks: Sequence[Check]) -> Refusal | None:
        refused: Check | None = None
        longest = 0
        for check in checks:
            rule, name = check
            table = self._tables.get(rule.table)
            if table is None:
                continue
            key = hash(name) or 1
            state = table.busy.get(key)
            if state is None:
                # A light key has used less than this.
                if rule.count >= BUSY and not table.shared:
                    continue
                state = table.state(key)
            if state is not None and state[USED] >= rule.count:
                left = wait(state, rule, self.now())
                if left and state[COUNT] != rule.count:
                    table.limit(key, state, rule)
                if left > longest:
                    refused, longest = check, left
        return None if refused is None else Refusal.after(refused, longest)

    def record_now(self, checks: Sequence[Check]) -> None:
        """Count a request that was admitted elsewhere."""
        now = self.now()
        for rule, name in checks:
            self._tables[rule.table].record(hash(name) or 1, rule, now)

    def now(self) -> int:
        """When the clock steps back, time goes on from where it was."""
        now = self._clock() + self._ahead
        if now < self._last:
            self._ahead += self._last - now
            now = self._last
        self._last = now
        return now
