"""The texts of an entry whose meaning is compared with that of a question."""

import re

from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.lexicon import translate

# Bounds the vectors of an entry. A piece is about as long as the model reads.
MOST_EMBEDDED_WORDINGS = 20
MOST_PIECES = 8
LONGEST_PIECE = 800

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


def list_texts(entry: Entry, *, is_english: bool = True) -> list[str]:
    """The texts of an entry that get a vector each; the nearest one counts.

    For a model that knows only English, Czech is translated.
    """
    keywords = ", ".join(entry.keywords)
    heads = [f"{entry.question} {keywords}".strip(), *entry.wordings[:MOST_EMBEDDED_WORDINGS]]
    pieces = split_pieces(entry.answer)
    texts = [*heads, *(f"{entry.question} {one}" for one in pieces)]
    return [translate(text) for text in texts] if is_english else texts


def split_pieces(answer: str) -> list[str]:
    """The answer in pieces that a model takes as a whole, at most MOST_PIECES."""
    pieces = [""]
    for sentence in _SENTENCE_END.split(answer[: MOST_PIECES * LONGEST_PIECE]):
        if pieces[-1] and len(pieces[-1]) + len(sentence) > LONGEST_PIECE:
            pieces.append("")
        pieces[-1] = f"{pieces[-1]} {sentence}".strip()
    return pieces[:MOST_PIECES]
