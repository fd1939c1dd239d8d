"""Excerpts: the sentences of a passage that answer a question."""

import re
from typing import Final

from hlas.knowledge.language import fold, meaningful_words

LONGEST: Final = 450
MOST_SENTENCES: Final = 4
# Inflected forms of a word mostly share their beginning.
STEM: Final = 5

_GAP = re.compile(r"(?<=[.!?…])\s+")
_ABBREVIATIONS = frozenset(
    ("bc", "čl", "dr", "ing", "mgr", "mr", "mrs", "ms", "mudr", "např", "no", "odst", "st", "ul")
)


def excerpt(text: str, question: str) -> str:
    """The neighbouring sentences that have most words of the question, up to LONGEST characters."""
    sentences = split_sentences(text)
    if not sentences:
        return ""
    wanted = _stems(question)
    found = [wanted & _stems(sentence) for sentence in sentences]

    def rate(first: int) -> tuple[int, int]:
        covered = set().union(*found[first : _find_end(sentences, first)])
        return len(covered), len(found[first])

    best = max(range(len(sentences)), key=rate)
    return _cut(" ".join(sentences[best : _find_end(sentences, best)]))


def split_sentences(text: str) -> list[str]:
    """Lines are sentences of their own, as in lists."""
    sentences: list[str] = []
    for line in text.splitlines():
        is_new = True
        for part in filter(None, _GAP.split(line.strip())):
            if is_new or _begins_sentence(sentences[-1], part):
                sentences.append(part)
            else:
                sentences[-1] += f" {part}"
            is_new = False
    return sentences


def _begins_sentence(before: str, part: str) -> bool:
    """Not after "14." or "Dr."; a sentence begins with a capital letter."""
    first = next((character for character in part if character.isalnum()), "")
    last = before.rsplit(maxsplit=1)[-1].strip("(.").lower()
    return first.isupper() and last not in _ABBREVIATIONS


def _find_end(sentences: list[str], first: int) -> int:
    """Where an excerpt that begins there ends; it has at least one sentence."""
    end, room = first + 1, LONGEST - len(sentences[first])
    while end < len(sentences) and end - first < MOST_SENTENCES:
        room -= len(sentences[end]) + 1
        if room < 0:
            break
        end += 1
    return end


def _cut(text: str) -> str:
    """Only a single sentence may be too long: it is cut after a word."""
    if len(text) <= LONGEST:
        return text
    return text[:LONGEST].rsplit(maxsplit=1)[0] + " …"


def _stems(text: str) -> set[str]:
    return {fold(word)[:STEM] for word in meaningful_words(text)}
