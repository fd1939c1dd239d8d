"""The terms of a text: the stems of its words, and the concepts that they share with others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language, detect, fold
from hlas.knowledge.ranking import lexicon
from hlas.knowledge.ranking.meaning import split_pieces
from hlas.knowledge.ranking.postings import IN_BODY, grade
from hlas.knowledge.ranking.words import Word, split_spoken

MOST_HEAD_WORDS = 120
MOST_PIECE_WORDS = 160
# Of a question: each word is compared with many entries.
MOST_QUESTION_WORDS = 60
# Of concepts that a word of an answer stands for.
LEAST_BODY_WEIGHT = 0.8


@dataclass(frozen=True, slots=True)
class Meant:
    """A word that carries meaning, and its terms by how directly it stands for them."""

    word: Word
    terms: Mapping[str, float]


def read_words(text: str, language: Language | None, most: int) -> list[Meant]:
    """The words of a text that carry meaning, in their order."""
    words = split_spoken(text, language, most)
    concepts = lexicon.load().list_concepts(words, language)
    return [
        Meant(word, {_stem_term(word): 1.0} | found)
        for word, found in zip(words, concepts, strict=True)
        if not word.is_stop
    ]


def _stem_term(word: Word) -> str:
    """Not to be confused with concepts."""
    return f"={word.stem}"


def find_language(entry: Entry) -> Language | None:
    return entry.language or detect(f"{entry.question} {entry.answer[:500]}")


def place_terms(entry: Entry, language: Language | None) -> dict[str, int]:
    """Where each term of an entry stands, as postings say it: in its head, or only in the body."""
    places: dict[str, int] = {}
    for head in (entry.question, *entry.wordings, *entry.keywords):
        _place(places, read_words(head, language, MOST_HEAD_WORDS), 0, 0.0)
    for piece in split_pieces(entry.answer):
        words = read_words(piece, language, MOST_PIECE_WORDS)
        _place(places, words, IN_BODY, LEAST_BODY_WEIGHT)
    return places


def _place(places: dict[str, int], words: Sequence[Meant], base: int, least: float) -> None:
    for meant in words:
        for term, weight in meant.terms.items():
            if weight >= least:
                place = base + grade(weight)
                places[term] = min(place, places.get(term, place))


def list_forms(entry: Entry, language: Language | None) -> Iterator[str]:
    """The words of an entry's head, as a visitor may misspell them."""
    for head in (entry.question, *entry.wordings, *entry.keywords):
        for word in split_spoken(head, language, MOST_HEAD_WORDS):
            if not word.is_stop:
                yield word.folded


def normalise(text: str) -> str:
    """The same for texts that differ in case, accents and punctuation."""
    return " ".join("".join(c if c.isalnum() else " " for c in fold(text)).split())
