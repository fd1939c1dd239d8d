"""The index of one tenant's knowledge, in memory."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

from hlas.knowledge.entries import Entry
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import EXACT, Match, Meaning, confidence
from hlas.knowledge.ranking.comparison import Question, Rarity
from hlas.knowledge.ranking.confidence import Evidence, Fitted
from hlas.knowledge.ranking.postings import Postings
from hlas.knowledge.ranking.terms import find_language, list_forms, normalise, place_terms

MATCHES = 10
# Compared word by word; they are found by a quick count of common terms.
CANDIDATES = 14


@dataclass(frozen=True, slots=True)
class _Record:
    entry_id: str
    entry: Entry
    language: Language | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that was compared with a question."""

    entry_id: str
    entry: Entry
    evidence: Evidence
    # The question is one of its heads.
    is_exact: bool


class Index:
    def __init__(self, fitted: Fitted | None = None) -> None:
        self.fitted = fitted or confidence.load()
        # The highest version that it contains.
        self.version = 0
        self.characters = 0
        self._last = 0
        self._records: dict[int, _Record] = {}
        self._numbers: dict[str, int] = {}
        self._postings = Postings()
        # How many heads contain a word, and which entries have a head.
        self._forms: dict[str, int] = {}
        self._heads: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._records)

    def put(self, entry_id: str, entry: Entry) -> None:
        """Add an entry, or replace it."""
        self.remove(entry_id)
        self._last += 1
        record = _Record(entry_id, entry, find_language(entry))
        self._records[self._last] = record
        self._numbers[entry_id] = self._last
        self._postings.add(self._last, place_terms(entry, record.language))
        for form in list_forms(entry, record.language):
            self._forms[form] = self._forms.get(form, 0) + 1
        for head in _list_heads(entry):
            self._heads.setdefault(head, []).append(self._last)
        self.characters += entry.count_characters()

    def remove(self, entry_id: str) -> None:
        number = self._numbers.pop(entry_id, None)
        if number is None:
            return
        record = self._records.pop(number)
        self._postings.remove(number, place_terms(record.entry, record.language))
        for form in list_forms(record.entry, record.language):
            self._forms[form] -= 1
            if not self._forms[form]:
                del self._forms[form]
        for head in _list_heads(record.entry):
            self._heads[head].remove(number)
            if not self._heads[head]:
                del self._heads[head]
        self.characters -= record.entry.count_characters()

    def keep(self, entry_ids: Collection[str]) -> None:
        """Remove all others."""
        for entry_id in [one for one in self._numbers if one not in entry_ids]:
            self.remove(entry_id)

    def search(self, text: str, language: Language, meaning: Meaning | None = None) -> list[Match]:
        """The entries that match the text best, best first."""
        question, candidates = self.compare(text, language, meaning)
        is_semantic = bool(meaning)
        model = self.fitted.semantic if is_semantic else self.fitted.lexical
        evidence = [one.evidence for one in candidates]
        sure = confidence.judge(model, evidence, question.features, is_semantic=is_semantic)
        matches = [
            Match(
                one.entry_id,
                one.entry.question,
                one.entry.answer,
                EXACT if one.is_exact else probability,
                one.entry.kind,
                one.entry.url,
            )
            for one, probability in zip(candidates, sure, strict=True)
        ]
        return nlargest(MATCHES, matches, key=lambda match: match.confidence)

    def compare(
        self, text: str, language: Language, meaning: Meaning | None
    ) -> tuple[Question, Sequence[Candidate]]:
        """The entries that may match a text, each with what speaks for it."""
        rarity = Rarity(self._postings, len(self), self.fitted.usual)
        question = Question(text, language, self._postings, self._forms, rarity)
        exact = self._heads.get(normalise(text)[:MOST_HEAD_CHARACTERS], ())
        counts = question.count_common()
        numbers = dict.fromkeys((*exact, *nlargest(CANDIDATES, counts, key=counts.__getitem__)))
        near = meaning or {}
        numbers |= dict.fromkeys(self._numbers[one] for one in near if one in self._numbers)
        farthest = min(near.values(), default=0.0)
        return question, [
            Candidate(
                record.entry_id,
                record.entry,
                question.compare(
                    number, record.entry, record.language, near.get(record.entry_id, farthest)
                ),
                number in exact,
            )
            for number in numbers
            for record in (self._records[number],)
        ]


MOST_HEAD_CHARACTERS = 500


def _list_heads(entry: Entry) -> Iterator[str]:
    """The texts that match the entry exactly."""
    yield from {
        normalised
        for head in (entry.question, *entry.wordings)
        if (normalised := normalise(head)[:MOST_HEAD_CHARACTERS])
    }
