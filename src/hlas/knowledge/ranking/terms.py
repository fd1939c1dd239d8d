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
# Of all heads of an entry together: more takes so long that other work waits for it.
MOST_HEADS_CHARACTERS = 8000
MOST_PIECE_WORDS = 160
# Lower than for entries: each word of a question is compared with many of them.
MOST_QUESTION_WORDS = 60
# Less direct concepts of words in answers are not indexed.
LEAST_BODY_WEIGHT = 0.8


@dataclass(frozen=True, slots=True)
class ContentWord:
    """A word that carries meaning, and its terms by how directly it stands for them."""

    word: Word
    terms: Mapping[str, float]


def read_words(text: str, language: Language | None, most: int) -> list[ContentWord]:
    """The words of a text that carry meaning, in their order."""
    words = split_spoken(text, language, most)
    concepts = lexicon.load().list_concepts(words, language)
    return [
        ContentWord(word, {_stem_term(word): 1.0} | found)
        for word, found in zip(words, concepts, strict=True)
        if not word.is_stop
    ]


def _stem_term(word: Word) -> str:
    """Marked, so that it differs from a concept."""
    return f"={word.stem}"


def find_language(entry: Entry) -> Language | None:
    return entry.language or detect(f"{entry.question} {entry.answer[:500]}")


def place_terms(entry: Entry, language: Language | None) -> dict[str, int]:
    """Where each term of an entry stands, as postings say it: in its head, or only in the body."""
    places: dict[str, int] = {}
    for head in _cut_heads(entry):
        _place(places, read_words(head, language, MOST_HEAD_WORDS), 0, 0.0)
    for piece in split_pieces(entry.answer):
        words = read_words(piece, language, MOST_PIECE_WORDS)
        _place(places, words, IN_BODY, LEAST_BODY_WEIGHT)
    return places


def _place(places: dict[str, int], words: Sequence[ContentWord], base: int, least: float) -> None:
    for content_word in words:
        for term, weight in content_word.terms.items():
            if weight >= least:
                place = base + grade(weight)
                places[term] = min(place, places.get(term, place))


def list_forms(entry: Entry, language: Language | None) -> Iterator[str]:
    """The words of an entry's head, as a visitor may misspell them."""
    for head in _cut_heads(entry):
        for word in split_spoken(head, language, MOST_HEAD_WORDS):
            if not word.is_stop:
                yield word.folded


def _cut_heads(entry: Entry) -> Iterator[str]:
    left = MOST_HEADS_CHARACTERS
    for head in (entry.question, *entry.keywords, *entry.wordings):
        yield head[:left]
        left -= len(head)
        if left <= 0:
            return


def normalise(text: str) -> str:
    """The same for texts that differ in case, accents and punctuation."""
    return " ".join("".join(c if c.isalnum() else " " for c in fold(text)).split())
