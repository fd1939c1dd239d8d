"""A question as it is understood, and what it has in common with an entry."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from math import log

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import MOST_WORDS, Language, detect
from hlas.knowledge.ranking import lexicon
from hlas.knowledge.ranking.confidence import UNUSUAL, USUAL_ENTRIES, Evidence, QuestionFeatures
from hlas.knowledge.ranking.postings import BITS, IN_BODY, STRENGTHS, Postings
from hlas.knowledge.ranking.terms import MOST_HEAD_WORDS, ContentWord, normalise, read_words
from hlas.knowledge.ranking.typos import correct

MOST_QUESTION_WORDS = 60
# Bounds the quick count of common terms; rare words come first.
MOST_POSTINGS = 2500
# Bounds how many words of an entry's heads are compared.
MOST_COMPARED_WORDS = 120
# Factors for a corrected word, and for a word in the body of an entry.
CORRECTED = 0.95
BODY = 0.6
# From this strength on, a term is what the word means, not only related to it.
DIRECT = 0.99


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A word of the question: its terms, its rarity, and how certain its spelling is."""

    content_word: ContentWord
    weight: float
    certainty: float


class Rarity:
    """The weight of a word: low if it is common in these entries or in questions in general."""

    def __init__(self, postings: Postings, entries: int, usual: Mapping[str, float]) -> None:
        self._postings = postings
        self._usual = usual
        self._total = entries + USUAL_ENTRIES

    def weigh(self, content_word: ContentWord) -> float:
        share = max(
            self._find_share(term)
            for term in content_word.terms
            if content_word.terms[term] >= DIRECT
        )
        return log(1 + 1 / share)

    def _find_share(self, term: str) -> float:
        usual = self._usual.get(term, UNUSUAL) * USUAL_ENTRIES
        return (self._postings.count(term) + usual) / self._total


class Question:
    """A question that is compared with the entries of one index."""

    def __init__(
        self,
        text: str,
        language: Language | None,
        postings: Postings,
        forms: Container[str],
        rarity: Rarity,
    ) -> None:
        self._postings = postings
        self._rarity = rarity
        spoken = detect(text) or language
        self._language = spoken
        distinct = {one.word.stem: one for one in read_words(text, spoken, MOST_QUESTION_WORDS)}
        self.words: list[QuestionWord] = []
        for content_word in list(distinct.values())[:MOST_WORDS]:
            found, certainty = self._spell(content_word, spoken, forms)
            self.words.append(QuestionWord(found, rarity.weigh(found), certainty))
        self.words.sort(key=lambda one: -one.weight)
        self._total = sum(one.weight for one in self.words)
        self._terms: dict[str, float] = {}
        for one in self.words:
            for term, weight in one.content_word.terms.items():
                known = self._terms.get(term, 0.0)
                self._terms[term] = max(weight * one.certainty, known)
        self._letters = list_letters(normalise(text))
        self.features = QuestionFeatures(len(self.words), spoken == "cs", self._share_unknown())

    def _spell(
        self, content_word: ContentWord, language: Language | None, forms: Container[str]
    ) -> tuple[ContentWord, float]:
        """The word itself, or its likely correction if it is unknown."""
        is_known = any(self._postings.count(term) for term in content_word.terms)
        if is_known or lexicon.load().knows(content_word.word, language):
            return content_word, 1.0
        corrected = correct(content_word.word.folded, forms) or correct(
            content_word.word.folded, lexicon.load().folded_lemmas
        )
        if corrected is None:
            return content_word, 1.0
        found = read_words(corrected, language, 1)
        return (found[0], CORRECTED) if found else (content_word, 1.0)

    def _share_unknown(self) -> float:
        unknown = sum(
            one.weight
            for one in self.words
            if not any(self._postings.count(term) for term in one.content_word.terms)
        )
        return unknown / self._total if self._total else 0.0

    def count_common(self) -> dict[int, float]:
        """A quick count of what entries have in common with it, by their number."""
        counts: dict[int, float] = {}
        left = MOST_POSTINGS
        for one in self.words:
            for term, weight in one.content_word.terms.items():
                found = self._postings[term]
                gains = _list_gains(one.weight * weight * one.certainty)
                if left <= 0 or self._postings.count(term) > left:
                    continue
                left -= self._postings.count(term)
                for posting in found:
                    number = posting >> BITS
                    counts[number] = counts.get(number, 0.0) + gains[posting & PLACES]
        return counts

    def compare(
        self, number: int, entry: Entry, language: Language | None, meaning: float
    ) -> Evidence:
        exact = head = whole = missing = 0.0
        for one in self.words:
            in_head = in_body = is_written = 0.0
            for term, weight in one.content_word.terms.items():
                place = self._postings.find(term, number)
                if place is None:
                    continue
                strength = weight * STRENGTHS[place % IN_BODY]
                if place >= IN_BODY:
                    in_body = max(in_body, strength)
                else:
                    in_head = max(in_head, strength)
                    if term.startswith("="):
                        is_written = 1.0
            share = one.weight * one.certainty
            exact += share * is_written
            head += share * in_head
            whole += share * max(in_head, BODY * in_body)
            missing = max(missing, one.weight * (1 - max(in_head, in_body)))
        total = self._total or 1.0
        covered, letters = self._compare_heads(entry, language)
        return Evidence(
            exact / total,
            head / total,
            whole / total,
            covered,
            letters,
            missing / total,
            float(bool(language and self._language and language != self._language)),
            meaning,
        )

    def _compare_heads(self, entry: Entry, language: Language | None) -> tuple[float, float]:
        """How much of the most similar head is in the question, by words and by letters."""
        covered = letters = 0.0
        left = MOST_COMPARED_WORDS
        for head in (entry.question, *entry.wordings):
            words = read_words(head, language, MOST_HEAD_WORDS)
            covered = max(covered, self._cover(words))
            letters = max(letters, measure_likeness(self._letters, list_letters(normalise(head))))
            left -= len(words) + 1
            if left <= 0:
                break
        return covered, letters

    def _cover(self, words: Sequence[ContentWord]) -> float:
        total = found = 0.0
        for content_word in words:
            weight = self._rarity.weigh(content_word)
            total += weight
            found += weight * max(
                (
                    strength * self._terms[term]
                    for term, strength in content_word.terms.items()
                    if term in self._terms
                ),
                default=0.0,
            )
        return found / total if total else 0.0


PLACES = (1 << BITS) - 1


def _list_gains(weight: float) -> list[float]:
    """The gain for each place of a posting."""
    gains = [weight * strength for strength in (*STRENGTHS, 0.0)]
    return [*gains, *(BODY * gain for gain in gains)]


def list_letters(normalised: str) -> set[str]:
    """Groups of three letters."""
    padded = f" {normalised[:300]} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}


def measure_likeness(one: set[str], other: set[str]) -> float:
    """Dice's coefficient."""
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0
