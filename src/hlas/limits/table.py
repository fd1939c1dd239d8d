"""The keys of one rule, in flat memory: little of it a key, and no pause when the table grows.

A key is a hash of 64 bits, with a secret that Python makes for each process (unless it is told not
to, by PYTHONHASHSEED): a stranger can aim neither at a place nor at another's key. Two keys of one
hash would share a limit, and among a million keys the chance that any two do is one in 37 million.

Rows lie in pages, found by extendible hashing: the low bits of a key choose a page in the
directory, higher ones the place in it where the search begins. A page that is too full is split
in two by the next bit, so a newcomer pays for one page at most, however many there are. A row is

    key, used, closes, at

as in a state (see there), and all there is of a light key: its requests are few, came in one slot
and are less than its limit. Any other key is busy: it has a state, where requests are counted
faster, and its row has a zero for `used` and lets it be found by those who look for places.
"""

import random
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from hlas.limits import state as states
from hlas.limits.rules import Rule
from hlas.limits.state import AT, CLOSES, COUNT, EARLIER, KEY, USED, State

if TYPE_CHECKING:
    Page: TypeAlias = array[int]

# A key is busy that has used so much.
BUSY = 8
# Places that newcomers share when every key of a full table is at its limit.
SHARED = 1024
# How many keys are looked at, at most, to find the least useful one.
_LOOKS = 32

WORDS = 4
# The bits that are looked at, from the lowest: for the page, and then ten for the place.
BITS = 0x3FFF_FFFF
PAGE_BITS = 20
# Some rows more, so that a search need not turn around; the last is empty, so that it ends.
_ROWS = 1024 + 32
_END = _ROWS * WORDS
_FULL = 1024 * 7 // 10
# Eight rows at a time: two keys at least in a page that was split. A page has a multiple of them.
_SWEPT = 8 * WORDS
# Behind the rows: how many keys there are, and how many bits they have in common.
_KEYS, _DEPTH = _END, _END + 1
# An empty row never expires, so a look for expired ones need not ask.
_EMPTY_ROW = array("q", [0, 0, 0, 2**63 - 1])
_EMPTY_PAGE = _EMPTY_ROW * _ROWS + array("q", [0, 0])


def start(key: int) -> int:
    """Tell where in its page the search for a key begins."""
    return ((key & BITS) >> PAGE_BITS) * WORDS


def search(page: "Page", place: int, key: int) -> int:
    """Find the place of a key from its start on; ~ the place where it would be, if it is absent."""
    found = page[place]
    while found != key:
        if not found:
            return ~place
        place += WORDS
        found = page[place]
    return place


def _deal(page: "Page", other: "Page", bit: int) -> None:
    """Put every row of the page anew, those of the keys that have this bit into the other one."""
    rows = page[:]
    page[:] = _EMPTY_PAGE
    moved = 0
    for place, key in zip(range(0, _END, WORDS), rows[:_END:WORDS], strict=True):
        if not key:
            continue
        bits = key & BITS
        half = page
        if bits & bit:
            half = other
            moved += 1
        # As `start` and `search` do, without calls: a split is the longest pause there is.
        free = (bits >> PAGE_BITS) * WORDS
        while half[free]:
            free += WORDS
        half[free : free + WORDS] = rows[place : place + WORDS]
    page[_KEYS] = rows[_KEYS] - moved
    other[_KEYS] = moved


class Table:
    """Rules do not share a table: addresses cannot push out tenants."""

    __slots__ = (
        "_hand",
        "_hand_page",
        "_max_keys",
        "_pages",
        "busy",
        "directory",
        "keys",
        "mask",
        "shared",
    )

    def __init__(self, max_keys: int) -> None:
        self.busy: dict[int, State] = {}
        self.shared: dict[int, State] = {}
        self.directory = [_EMPTY_PAGE[:]]
        self.mask = 0
        self.keys = 0
        self._pages = self.directory[:]
        self._hand = self._hand_page = 0
        self._max_keys = max_keys

    def find(self, key: int) -> tuple["Page", int]:
        page = self.directory[key & self.mask]
        return page, search(page, start(key), key)

    def state(self, key: int) -> State | None:
        """Tell what counts for a key; of a light one it is a copy."""
        state = self.busy.get(key)
        if state is not None:
            return state
        page, place = self.find(key)
        if place < 0:
            return self.shared.get(key % SHARED)
        return states.new(*page[place : place + WORDS])

    def record(self, key: int, rule: Rule, now: int) -> None:
        """Count one more request."""
        state = self.busy.get(key)
        if state is not None:
            states.add(state, rule, now)
            return
        page, place = self.find(key)
        if place < 0:
            self.welcome(key, rule, now)
            return
        state = states.new(*page[place : place + WORDS])
        states.add(state, rule, now)
        self._keep(page, place, state)

    def welcome(self, key: int, rule: Rule, now: int) -> None:
        """Count the first request of a key that has no row."""
        horizon = now - rule.window
        self._sweep(horizon)
        held = self._held(key, horizon)
        full = self.keys >= self._max_keys and not self._evict(rule, horizon)
        if full or not self.insert(key, now + rule.slot, now):
            # Nothing is used yet, and what is used at the horizon has expired.
            held = held or self.shared.setdefault(key % SHARED, states.new(key, 0, now, horizon))
            states.add(held, rule, now)
        elif held is not None:
            # It may have been here before: a place of its own does not forgive what was shared.
            self._continue(key, held, rule, now)
        elif rule.count == 1:
            # A limit of one is reached at once, and only a state can tell.
            self._keep(*self.find(key), [key, 1, now + rule.slot, now, 1, 0])

    def _held(self, key: int, horizon: int) -> State | None:
        """What is used in the place that a key may share, as long as it counts."""
        held = self.shared.get(key % SHARED)
        if held is not None and held[AT] <= horizon:
            del self.shared[key % SHARED]
            return None
        return held

    def _continue(self, key: int, held: State, rule: Rule, now: int) -> None:
        state = [key, *held[USED:]]
        states.add(state, rule, now)
        self._keep(*self.find(key), state)

    def limit(self, key: int, state: State, rule: Rule) -> None:
        """Let a key be known as one that is at its limit, though the limit was higher before."""
        state[COUNT] = rule.count
        if key not in self.busy:
            page, place = self.find(key)
            if place >= 0:
                self._keep(page, place, state)

    def _keep(self, page: "Page", place: int, state: State) -> None:
        """Write a key that has a row as what it is by now, light or busy."""
        page[place : place + WORDS] = array("q", state[:WORDS])
        if state[USED] >= min(BUSY, state[COUNT]) or state[EARLIER]:
            page[place + USED] = 0
            self.busy[state[KEY]] = state

    def insert(self, key: int, closes: int, at: int) -> bool:
        """Make the row of a new light key; False: there is no place for it."""
        while True:
            page = self.directory[key & self.mask]
            place = ~search(page, start(key), key)
            if place < 0:
                # It is there: a request named it twice.
                return True
            if page[_KEYS] < _FULL and place < _END - WORDS:
                break
            if not self._split(page, key):
                return False
        page[place] = key
        page[place + USED] = 1
        page[place + CLOSES] = closes
        page[place + AT] = at
        page[_KEYS] += 1
        self.keys += 1
        return True

    def _split(self, page: "Page", key: int) -> bool:
        """Move the keys of which the next bit is set to a page of their own."""
        depth = page[_DEPTH]
        if depth == PAGE_BITS:
            return False
        bit = 1 << depth
        if bit > self.mask:
            self.directory += self.directory
            self.mask = len(self.directory) - 1
        other = _EMPTY_PAGE[:]
        _deal(page, other, bit)
        page[_DEPTH] = other[_DEPTH] = depth + 1
        self._pages.append(other)
        for number in range(key & bit - 1 | bit, len(self.directory), bit * 2):
            self.directory[number] = other
        return True

    def remove(self, page: "Page", place: int) -> None:
        """Remove the key in this row, and close the gap, where a search would end too early."""
        if not page[place + USED]:
            del self.busy[page[place]]
        page[_KEYS] -= 1
        self.keys -= 1
        behind = place + WORDS
        while page[behind]:
            if start(page[behind]) <= place:
                page[place : place + WORDS] = page[behind : behind + WORDS]
                place = behind
            behind += WORDS
        page[place : place + WORDS] = _EMPTY_ROW

    def _sweep(self, horizon: int) -> None:
        """Some looks for expired keys at each new one keep the table as small as its use."""
        if self.shared:
            self._held(next(iter(self.shared)), horizon)
        page, first = self._pages[self._hand_page], self._hand
        if first:
            self._hand -= _SWEPT
        else:
            self._hand = _END - _SWEPT
            self._hand_page = (self._hand_page or len(self._pages)) - 1
        if min(page[first + AT : first + _SWEPT : WORDS]) > horizon:
            return
        # Backwards: what moves into a gap comes from behind it and has been looked at.
        for place in range(first + _SWEPT - WORDS, first - WORDS, -WORDS):
            if page[place + AT] <= horizon and self._expired(page, place, horizon):
                self.remove(page, place)

    def _expired(self, page: "Page", place: int, horizon: int) -> bool:
        if not page[place + USED]:
            # The row of a busy key has the time of the last such look.
            page[place + AT] = self.busy[page[place]][AT]
        return page[place + AT] <= horizon

    def _evict(self, rule: Rule, horizon: int) -> bool:
        """Remove the least used of some keys, but never one that is at its limit."""
        victim, least = None, 1.0
        for page, place in self._samples():
            share = self._share(page, place, rule, horizon)
            if share < least:
                victim, least = (page, place), share
                if not share:
                    break
        if victim is None:
            return False
        self.remove(*victim)
        return True

    def _samples(self) -> Iterator[tuple["Page", int]]:
        """Find some keys, each as likely as any other: all of a few, or so many from anywhere.

        Not those next to each other: where one could go, it has gone, and such places grow.
        """
        if self.keys <= _LOOKS:
            for page in self._pages:
                yield from ((page, place) for place in range(0, _END, WORDS) if page[place])
            return
        looks = 0
        # A third of the rows are keys, or somewhat less in a small table.
        for _ in range(_LOOKS * 8):
            page = self._pages[int(random.random() * len(self._pages))]  # noqa: S311 - no secret
            place = int(random.random() * _ROWS) * WORDS  # noqa: S311 - no secret
            if page[place]:
                yield page, place
                looks += 1
                if looks == _LOOKS:
                    return

    def _share(self, page: "Page", place: int, rule: Rule, horizon: int) -> float:
        """How much of its limit a key has used; nothing, if it may go at once."""
        used = page[place + USED]
        if used == 1 or self._expired(page, place, horizon):
            return 0.0
        if not used:
            state = self.busy[page[place]]
            return state[USED] / state[COUNT]
        # A light key is under its limit, or has not asked since that was lowered.
        return min(used / rule.count, 0.99)
