"""Groups questions that ask for the same thing, by the words they share."""

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import Literal, Self, TypeAlias
from uuid import UUID

from hlas.knowledge.language import MOST_WORDS, Language, detect
from hlas.knowledge.ranking.words import split_words

# Weakest first: a question keeps the strongest.
Reason: TypeAlias = Literal["fallback", "none_of_these", "thumbs_down"]

# Two questions are alike if they share so large a part of their words.
LIKENESS = 0.5
# Bounds the cost: so many groups are compared with a question for each of its rarest words.
CANDIDATES = 50
RAREST = 16
# Of these, the ones that share most words are compared exactly.
COMPARED = 8
# How many questions are sampled to detect their language.
SAMPLE = 100
# Yield to other work after so many questions.
SLICE = 25
# What a group shows and what one change can resolve; the rest of a larger group follows.
MOST_QUESTIONS = 200
MOST_WORDINGS = 20
LONGEST_WORDING = 500
# An older question counts half as much after so long.
HALF_LIFE_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Question:
    """A visitor's message without a good answer."""

    conversation_id: UUID
    seq: int
    text: str
    reason: Reason
    asked_at: datetime
    # The entries that were offered or sent and did not help.
    entries: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.conversation_id}.{self.seq}"


@dataclass(frozen=True, slots=True)
class Group:
    """Questions that are alike, newest first."""

    questions: tuple[Question, ...]
    # The most typical wording, then the others; those that are too long for an entry are left out.
    title: str
    wordings: tuple[str, ...]
    # The logarithm of the count, in which a question of last week counts half. It does not depend
    # on the present time, so that pages stay in order.
    score: float

    @property
    def id(self) -> str:
        return self.questions[0].id

    @property
    def last_asked_at(self) -> datetime:
        return self.questions[0].asked_at

    def count_reasons(self) -> dict[Reason, int]:
        counted = Counter(question.reason for question in self.questions)
        return dict(counted.most_common())

    def find_refused(self) -> frozenset[str]:
        """The entries that visitors said do not answer it."""
        refused = (one.entries for one in self.questions if one.reason != "fallback")
        return frozenset(entry for entries in refused for entry in entries)


Stems: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question and its words."""

    question: Question
    # The same for texts that differ in case, diacritics and punctuation alone.
    wording: str
    stems: Stems

    @classmethod
    def read(cls, question: Question, language: Language | None) -> Self:
        words = split_words(question.text, language, MOST_WORDS)
        stems = frozenset(word.stem for word in words if not word.is_stop)
        wording = " ".join(word.folded for word in words)
        # A question of stop words alone is like itself only.
        return cls(question, wording, stems or frozenset({wording}))

    @property
    def order(self) -> tuple[datetime, str]:
        return self.question.asked_at, self.question.id


async def gather(questions: Sequence[Question]) -> list[Group]:
    """Group questions: what is asked most and most recently comes first."""
    languages = Counter(detect(question.text) for question in questions[:SAMPLE])
    del languages[None]
    # A word or two do not tell their language.
    common = max(languages, key=lambda one: languages[one], default=None)
    same: defaultdict[Stems, list[_Asked]] = defaultdict(list)
    for number, question in enumerate(questions, start=1):
        asked = _Asked.read(question, common)
        same[asked.stems].append(asked)
        if number % SLICE == 0:
            await asyncio.sleep(0)
    grouped: defaultdict[Stems, list[_Asked]] = defaultdict(list)
    leaders = _Leaders(same)
    # What is asked most, and in the fewest words, leads a group that others join.
    ordered = sorted(same.values(), key=_precedence)
    for number, alike in enumerate(ordered, start=1):
        grouped[leaders.find(alike[0].stems)] += alike
        if number % SLICE == 0:
            await asyncio.sleep(0)
    return sorted(map(_make_group, grouped.values()), key=lambda group: (-group.score, group.id))


def _precedence(alike: Sequence[_Asked]) -> tuple[int, int, float, str]:
    asked_at, question_id = max(one.order for one in alike)
    return -len(alike), len(alike[0].stems), -asked_at.timestamp(), question_id


class _Leaders:
    """The groups so far, each known by the words of its first question."""

    def __init__(self, all_stems: Iterable[Stems]) -> None:
        self._frequency = Counter(stem for stems in all_stems for stem in stems)
        self._by_stem: defaultdict[str, list[Stems]] = defaultdict(list)

    def find(self, stems: Stems) -> Stems:
        """The group it belongs to: the most similar one, or a new one of its own."""
        shared: Counter[Stems] = Counter()
        for stem in nsmallest(RAREST, stems, key=lambda one: (self._frequency[one], one)):
            shared.update(self._by_stem[stem][:CANDIDATES])
        likeliest = [leader for leader, _ in shared.most_common(COMPARED)]
        best = max(likeliest, key=lambda one: self._compare(one, stems), default=None)
        if best is not None and self._compare(best, stems)[0] >= LIKENESS:
            return best
        for stem in stems:
            self._by_stem[stem].append(stems)
        return stems

    def _compare(self, leader: Stems, stems: Stems) -> tuple[float, float]:
        """The share of common words, then their rarity: a rare word says more."""
        shared = leader & stems
        rarity = sum(1 / self._frequency[stem] for stem in sorted(shared))
        return len(shared) / len(leader | stems), rarity


def _make_group(members: list[_Asked]) -> Group:
    members.sort(key=lambda one: one.order, reverse=True)
    wordings = _list_wordings(members)
    fitting = [wording for wording in wordings if len(wording) <= LONGEST_WORDING]
    title = (fitting or [wordings[0][:LONGEST_WORDING]])[0]
    questions = tuple(one.question for one in members)
    return Group(questions, title, tuple(fitting[1 : MOST_WORDINGS + 1]), _score(questions))


def _list_wordings(members: Sequence[_Asked]) -> list[str]:
    """Each wording once, as it was written last: the most frequent first, then whole sentences
    with the fewest words that no other has.
    """
    last: dict[str, _Asked] = {}
    for one in members:
        last.setdefault(one.wording, one)
    count = Counter(one.wording for one in members)
    common = Counter(stem for one in last.values() for stem in one.stems)

    def order(one: _Asked) -> tuple[int, bool, int]:
        own = sum(common[stem] == 1 for stem in one.stems)
        return -count[one.wording], " " not in one.wording, own

    return [" ".join(one.question.text.split()) for one in sorted(last.values(), key=order)]


def _score(questions: Sequence[Question]) -> float:
    ages = [one.asked_at.timestamp() / HALF_LIFE_SECONDS for one in questions]
    newest = max(ages)
    return newest + math.log2(sum(2 ** (age - newest) for age in ages))
