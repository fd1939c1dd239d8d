"""An agent that works offline: it answers from the tenant's own questions and answers."""

import asyncio

from hlas import errors, log
from hlas.agent import Answer, Listener, Question
from hlas.agent.ranker import Ranker
from hlas.knowledge.ranking import Match

# Below this confidence the tenant's fallback sentence is better than a guess.
THRESHOLD = 0.45
# Including the wait for other questions; after that the fallback sentence is stored for good.
ANSWER_SECONDS = 6.0
# How many of the latest unanswered messages are answered.
QUESTIONS = 3


class KnowledgeAgent:
    """Answers with the entries that match best, word for word."""

    def __init__(self, ranker: Ranker) -> None:
        self._ranker = ranker

    async def answer(self, question: Question, _: Listener) -> Answer:
        """Answer each of the visitor's messages that the knowledge covers."""
        found: dict[str, Match] = {}
        confidence = 0.0
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for text in (*question.earlier, question.text)[-QUESTIONS:]:
                    matches = await self._ranker.rank(question.tenant_id, text, question.language)
                    best = next(iter(matches), None)
                    confidence = max(confidence, best.confidence if best else 0.0)
                    if best is not None and best.confidence >= THRESHOLD:
                        found.setdefault(best.entry_id, best)
        except (TimeoutError, errors.Unavailable):
            log.warning("ranking_skipped")
        if not found:
            return Answer(None, "knowledge", confidence)
        answers = "\n\n".join(match.answer for match in found.values())
        return Answer(answers, "knowledge", confidence, tuple(found))
