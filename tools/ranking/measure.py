"""How an organisation's questions are answered, as the product decides it."""

from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from tools.ranking.bases import Base
from tools.ranking.data import Case

from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Decision, Match
from hlas.knowledge.ranking.confidence import Thresholds
from hlas.knowledge.ranking.decision import decide

SMALL_TALK = "smalltalk"
UNCOVERED = frozenset({"near_miss", "off_topic"})


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    # right, offered, wrong, unanswered; of uncovered questions: answered or unanswered.
    verdict: str


class Searches:
    """Remembers what was found, because thresholds are tried one after the other."""

    def __init__(self, base: Base, *, is_semantic: bool) -> None:
        self._base = base
        self._is_semantic = is_semantic
        self._known: dict[tuple[str, Language], list[Match]] = {}

    def find(self, text: str, language: Language) -> list[Match]:
        key = text, language
        if key not in self._known:
            meaning = self._base.meanings.compare(text) if self._is_semantic else None
            self._known[key] = self._base.index.search(text, language, meaning)
        return self._known[key]

    def judge(self, case: Case, thresholds: Thresholds) -> Outcome:
        async def search(text: str) -> list[Match]:
            return self.find(text, case.language)

        decision = _run(decide(search, case.text, case.language, case.previous, thresholds))
        return Outcome(case, find_verdict(case, decision, self._base.own))


def _run(decision: Coroutine[None, None, Decision]) -> Decision:
    """It never waits, and a loop for each would take most of the time."""
    try:
        decision.send(None)
    except StopIteration as end:
        found: Decision = end.value
        return found
    raise AssertionError


def find_verdict(case: Case, decision: Decision, own: frozenset[str]) -> str:
    sent = {match.entry_id for match in decision.matches}
    if case.kind == SMALL_TALK:
        return "right" if decision.small_talk else "wrong" if sent else "unanswered"
    if not case.is_covered:
        # Whether a stranger's entry answers it, nobody knows.
        return "answered" if sent & own else "unanswered"
    if sent:
        return "right" if sent & set(case.expected) else "wrong"
    offered = {match.entry_id for match in decision.suggestions}
    return "offered" if offered & set(case.expected) else "unanswered"


def count_shares(outcomes: Sequence[Outcome]) -> dict[str, float]:
    counts = Counter(one.verdict for one in outcomes)
    return {verdict: count / len(outcomes) for verdict, count in counts.items()}
