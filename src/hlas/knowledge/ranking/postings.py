"""Which entries contain a term: sorted arrays of numbers, four bytes a posting."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from sys import intern

from hlas.knowledge.ranking.lexicon import FIRST_GLOSS, SYNONYM

# A posting is the entry's number, shifted by these bits, and the place of the term in it.
BITS = 3
IN_BODY = 4
# How directly a word stands for the term: of itself, by another word, as a part of a phrase.
STRENGTHS = (1.0, 0.8, 0.5)


def grade(weight: float) -> int:
    """The place in STRENGTHS."""
    return 0 if weight >= FIRST_GLOSS else 1 if weight >= SYNONYM else 2


class Postings:
    """Numbers only grow, so an entry that is added stands at the end of each array."""

    def __init__(self) -> None:
        self._arrays: dict[str, array[int]] = {}

    def __getitem__(self, term: str) -> Iterable[int]:
        return self._arrays.get(term, ())

    def count(self, term: str) -> int:
        """How many entries contain the term."""
        found = self._arrays.get(term)
        return 0 if found is None else len(found)

    def add(self, number: int, places: Mapping[str, int]) -> None:
        """Add an entry: the place of each of its terms."""
        for term, place in places.items():
            found = self._arrays.get(term)
            if found is None:
                found = self._arrays[intern(term)] = array("I")
            found.append(number << BITS | place)

    def remove(self, number: int, terms: Iterable[str]) -> None:
        for term in terms:
            found = self._arrays[term]
            del found[bisect_left(found, number << BITS)]
            if not found:
                del self._arrays[term]

    def find(self, term: str, number: int) -> int | None:
        """The place of a term in an entry."""
        found = self._arrays.get(term)
        if found is None:
            return None
        at = bisect_left(found, number << BITS)
        if at == len(found) or found[at] >> BITS != number:
            return None
        return found[at] & (1 << BITS) - 1

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)
