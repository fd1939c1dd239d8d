"""An agent that works offline: it answers from the tenant's own questions and answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hlas import errors, log
from hlas.agent import Answer, Listener, Question, Source, phrases
from hlas.agent.excerpts import excerpt
from hlas.agent.passages import find_page
from hlas.agent.ranker import Ranker
from hlas.agent.speaker import show_sources
from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Decision, Match
from hlas.knowledge.ranking.decision import decide

# Including the wait for other questions; after that the fallback sentence is stored for good.
ANSWER_SECONDS = 6.0
# How many of the latest unanswered messages are answered.
QUESTIONS = 3

# What becomes of an entry that matches a question, in words for people.
Use: TypeAlias = Literal["sure", "offered", "not sent"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What the knowledge has on one text."""

    # With the question before it, if it was understood through that.
    text: str
    decision: Decision
    # All that was found on the way, best first.
    matches: tuple[Match, ...] = ()

    def find_use(self, match: Match) -> Use:
        if any(one.entry_id == match.entry_id for one in self.decision.matches):
            return "sure"
        offered = any(one.entry_id == match.entry_id for one in self.decision.suggestions)
        return "offered" if offered else "not sent"


class KnowledgeAgent:
    """Answers with the entries that match best, word for word."""

    def __init__(self, ranker: Ranker) -> None:
        self._ranker = ranker

    async def answer(self, question: Question, listener: Listener) -> Answer:
        """Answer each of the visitor's messages that the knowledge covers."""
        return tell(await look_up_all(self._ranker, question), question.language, listener)


def tell(findings: Sequence[Finding], language: Language, listener: Listener) -> Answer:
    """The answer to what was found, with its sources shown."""
    answer = compose(findings, language)
    show_sources(listener, answer.sources)
    return answer


async def look_up(
    ranker: Ranker, tenant_id: str, text: str, language: Language, previous: str | None = None
) -> Finding:
    """Decide about one text; `previous` is what the visitor asked before it."""
    found: dict[str, Match] = {}

    async def search(text: str) -> list[Match]:
        matches = await ranker.rank(tenant_id, text, language)
        for match in matches:
            known = found.get(match.entry_id)
            if known is None or known.confidence < match.confidence:
                found[match.entry_id] = match
        return matches

    decision = await decide(search, text, language, previous)
    best_first = sorted(found.values(), key=lambda match: -match.confidence)
    whole = f"{previous} {text}" if previous and decision.is_follow_up else text
    return Finding(whole, decision, tuple(best_first))


async def look_up_all(ranker: Ranker, question: Question) -> list[Finding]:
    """The same for the last of the visitor's messages without an answer, as time permits."""
    texts = (*question.context, *question.earlier, question.text)
    asked = list(zip((None, *texts), texts, strict=False))[len(question.context) :][-QUESTIONS:]
    findings = [Finding(text, Decision()) for _, text in asked]
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            for number, (previous, text) in enumerate(asked):
                findings[number] = await look_up(
                    ranker, question.tenant_id, text, question.language, previous
                )
    except (TimeoutError, errors.Unavailable):
        # Not searched is not the same as nothing found.
        log.warning("ranking_skipped")
    return findings


def is_pleasantry(findings: Sequence[Finding]) -> bool:
    """Small talk for which no model needs to be paid. "Yes" may answer what a model has asked."""
    return all(one.decision.small_talk not in {None, "assent"} for one in findings)


def compose(findings: Sequence[Finding], language: Language) -> Answer:
    """One answer to all of them; without text the tenant's fallback sentence is sent."""
    confidence = max((one.decision.confidence for one in findings), default=0.0)
    if any(one.decision.matches for one in findings):
        return _send_entries(findings, language, confidence)
    talks = [one.decision.small_talk for one in findings]
    if talks and talks[-1] and all(talks):
        return Answer(phrases.SMALL_TALK[talks[-1]][language], "smalltalk", confidence)
    suggested = [one.decision.suggestions for one in findings if one.decision.suggestions]
    offered = suggested[-1] if suggested else ()
    return Answer(
        phrases.SUGGESTIONS[language] if offered else None,
        "fallback",
        confidence,
        entries=tuple(match.entry_id for match in offered),
        suggestions=tuple(match.question for match in offered),
    )


def _send_entries(findings: Sequence[Finding], language: Language, confidence: float) -> Answer:
    """Each entry once; under its question, if there are several."""
    sent: dict[str, tuple[Match, Finding]] = {}
    for finding in findings:
        for match in finding.decision.matches:
            sent.setdefault(match.entry_id, (match, finding))
    parts: list[str] = []
    sources: list[Source] = []
    for match, finding in sent.values():
        if len(sent) > 1:
            parts.append(f"**{_title(match)}**")
        elif finding.decision.is_follow_up:
            parts.append(phrases.TOPIC[language].format(_title(match)))
        if match.kind == "answer":
            parts.append(match.answer)
        else:
            number = len(sources) + 1
            sources.append(Source(number, match.question, find_page(match)))
            parts.append(f"{excerpt(match.answer, finding.text)} [{number}]")
    return Answer(
        "\n\n".join(parts), "knowledge", confidence, entries=tuple(sent), sources=tuple(sources)
    )


def _title(match: Match) -> str:
    """On one line, and not bold in itself."""
    return " ".join(match.question.replace("*", "").split())
