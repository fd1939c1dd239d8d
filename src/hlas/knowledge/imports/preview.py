"""What an import would change, before anything is saved."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias
from uuid import UUID

from hlas.knowledge.entries import LONGEST_QUESTION, Entry, StoredEntry
from hlas.knowledge.imports.reading import Reading

# edited: changed by a person since its import; kept.
# taken: another entry already has this question; kept.
# left_out: removed, or not chosen at an earlier import.
State: TypeAlias = Literal["new", "changed", "removed", "unchanged", "edited", "taken", "left_out"]
# What is saved unless somebody chooses otherwise.
DEFAULT: frozenset[State] = frozenset({"new", "changed", "removed"})


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a source, or one that is no longer in it."""

    state: State
    # The text in the source; of a removed entry, the stored one.
    entry: Entry
    stored: StoredEntry | None = None

    @property
    def key(self) -> str:
        """The question in the source, which identifies it there."""
        if self.state == "removed" and self.stored is not None:
            return self.stored.imported_as or self.stored.question
        return self.entry.question

    @property
    def is_open(self) -> bool:
        """Whether there is something to choose."""
        return self.state != "unchanged"


@dataclass(frozen=True, slots=True)
class Preview:
    """What importing one source would change."""

    reading: Reading
    items: tuple[Item, ...]

    def count(self, *states: State) -> int:
        counted = Counter(item.state for item in self.items)
        return sum(counted[state] for state in states)

    def choose_default(self) -> frozenset[str]:
        return frozenset(item.key for item in self.items if item.state in DEFAULT)


def compare(
    reading: Reading,
    stored: Sequence[StoredEntry],
    source_id: UUID | None,
    left_out: Collection[str] = (),
) -> Preview:
    """Compare what a source contains with all entries of the tenant."""
    mine = {one.imported_as: one for one in stored if source_id and one.source_id == source_id}
    # Also what a person has reworded: its question here is not that of the source.
    others = {
        one.question: one
        for one in stored
        if one.source_id != source_id or one.question != one.imported_as
    }
    items: list[Item] = []
    left_out = frozenset(left_out)
    for found in reading.entries:
        entry = _avoid_repeat(found, reading, mine, others)
        old, other = mine.get(entry.question), others.get(entry.question)
        if old and _is_elsewhere(entry, old, reading):
            entry = old.entry
        items.append(Item(_find_state(entry, old, other, left_out), entry, old or other))
    here = {item.entry.question for item in items}
    items += [
        Item("removed", old.entry, old)
        for key, old in mine.items()
        if key not in here and not old.is_edited and _is_covered(reading, old)
    ]
    return Preview(reading, tuple(items))


def _find_state(
    entry: Entry, old: StoredEntry | None, other: StoredEntry | None, left_out: Collection[str]
) -> State:
    if old is not None:
        if old.is_edited:
            return "edited"
        return "unchanged" if _is_same(old, entry) else "changed"
    if other is not None:
        return "unchanged" if other.answer == entry.answer else "taken"
    return "left_out" if entry.question in left_out else "new"


def _is_same(old: StoredEntry, entry: Entry) -> bool:
    """Keywords, other wordings and the language are what people add, so they do not count."""
    return (old.answer, old.kind, old.url) == (entry.answer, entry.kind, entry.url)


def _avoid_repeat(
    entry: Entry,
    reading: Reading,
    mine: dict[str | None, StoredEntry],
    others: dict[str, StoredEntry],
) -> Entry:
    """Headings repeat on websites: name the page in the heading of another passage."""
    if entry.kind == "answer" or not entry.url:
        return entry
    old, other = mine.get(entry.question), others.get(entry.question)
    is_taken = old is None and other is not None and other.answer != entry.answer
    if not is_taken and not (old and _is_elsewhere(entry, old, reading)):
        return entry
    page = f" ({entry.url.partition('://')[2]})"
    return replace(entry, question=entry.question[: LONGEST_QUESTION - len(page)] + page)


def _is_elsewhere(entry: Entry, old: StoredEntry, reading: Reading) -> bool:
    """Whether it is on another page, while that of the stored one could not be read."""
    return entry.url != old.url and not _is_covered(reading, old)


def _is_covered(reading: Reading, old: StoredEntry) -> bool:
    """Whether it would have been found; a page that could not be read says nothing."""
    return reading.covered is None or old.url in reading.covered


def compare_own(reading: Reading, stored: Sequence[StoredEntry]) -> Preview:
    """The same for a file in our own format, which a person wrote: it replaces what is there."""
    known = {one.question: one for one in stored}
    items = []
    for entry in reading.entries:
        old = known.get(entry.question)
        state: State = "new"
        if old is not None:
            state = "unchanged" if old.entry == entry else "changed"
        items.append(Item(state, entry, old))
    return Preview(reading, tuple(items))
