"""Corrects misspelled words to words that are known."""

from collections.abc import Container, Iterator
from string import ascii_lowercase

LEAST_LENGTH = 4
LONGEST = 20


def correct(folded: str, known: Container[str]) -> str | None:
    """A known word at one change from this one; likelier changes are tried first."""
    if not LEAST_LENGTH <= len(folded) <= LONGEST or not folded.isalpha():
        return None
    return next((word for word in _list_changes(folded) if word in known), None)


def _list_changes(word: str) -> Iterator[str]:
    """Two letters swapped, one missing, doubled or another. The first letter is seldom wrong."""
    for at in range(len(word) - 1):
        yield word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    for at in range(1, len(word)):
        if len(word) > LEAST_LENGTH:
            yield word[:at] + word[at + 1 :]
    for at in range(1, len(word) + 1):
        for letter in ascii_lowercase:
            yield word[:at] + letter + word[at:]
    if len(word) > LEAST_LENGTH:
        for at in range(1, len(word)):
            for letter in ascii_lowercase:
                yield word[:at] + letter + word[at + 1 :]
