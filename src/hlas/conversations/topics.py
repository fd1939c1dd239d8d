"""Who follows a conversation on a worker, and from where it is read for them."""

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from hlas.conversations.readers import Progress, Reader, Snapshot

# A reader that is behind gets one page at a time, and all such readers of a conversation together
# one page in this time, besides the first page of each: opening a stream counts as a read.
PAGE_SECONDS = 0.2
# Streams that are kept alive, or read again, before other work gets its turn.
STREAMS_PER_TURN = 20

Due = TypeVar("Due")
Item = TypeVar("Item")


class Topic:
    """A conversation that somebody follows."""

    __slots__ = ("_next_page_at", "_read_from", "checked_at", "progress", "readers", "watchers")

    def __init__(self) -> None:
        self.readers: set[Reader] = set()
        # Called when the conversation may have changed; they look for themselves.
        self.watchers: set[Callable[[], None]] = set()
        self.checked_at = time.monotonic()
        # The text of the run under way, as far as it was read.
        self.progress: Progress | None = None
        # Where those who are not behind have got to, as of the last statement.
        self._read_from: int | None = None
        self._next_page_at = 0.0

    @property
    def has_readers_behind(self) -> bool:
        return any(reader.is_behind for reader in self.readers)

    def list_positions(self) -> set[int]:
        """Read after these: for all who have seen everything, and for one who is behind.

        Each is served by itself, so readers that start from the beginning hold up nobody else.
        """
        current = [reader.seq for reader in self.readers if not reader.is_behind]
        self._read_from = min(current, default=None)
        behind = self._find_due()
        positions = {self._read_from, behind.seq if behind else None}
        return {position for position in positions if position is not None}

    @property
    def is_page_due(self) -> bool:
        return self._find_due() is not None

    def _find_due(self) -> Reader | None:
        """The reader that gets the next page: one that has had none yet, else in turn."""
        may_page = time.monotonic() >= self._next_page_at
        due = [
            reader
            for reader in self.readers
            if reader.is_behind and (not reader.paged_at or (may_page and reader.is_drained))
        ]
        return min(due, key=lambda reader: reader.paged_at, default=None)

    def list_served(self, after: int) -> list[Reader]:
        """The readers for whom the conversation was read after this seq."""
        return [
            reader
            for reader in self.readers
            if after == (reader.seq if reader.is_behind else self._read_from)
            and (reader.is_drained or not reader.is_behind or not reader.paged_at)
        ]

    def note_page(self, reader: Reader, snapshot: Snapshot) -> None:
        """A reader has got a page: is there more for it?"""
        reader.is_behind = reader.seq < snapshot.last_seq
        reader.paged_at = time.monotonic()
        if reader.is_behind:
            self._next_page_at = reader.paged_at + PAGE_SECONDS


def take_oldest(due: list[Due], total: int, age: Callable[[Due], float]) -> list[Due]:
    """Streams that were opened together are not served all at once again and again."""
    return heapq.nsmallest(total // 10 + 50, due, key=age)


async def take_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Let messages through between a few of many streams."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % STREAMS_PER_TURN == 0:
            await asyncio.sleep(0)
