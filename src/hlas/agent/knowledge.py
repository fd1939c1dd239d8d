"""An agent that works offline: it answers from the tenant's own questions and answers."""

import asyncio
from weakref import WeakValueDictionary

from hlas import errors, log
from hlas.agent import Answer, Listener, Question
from hlas.knowledge import entries
from hlas.store.db import Database

# Below this confidence the tenant's fallback sentence is better than a guess.
THRESHOLD = 0.45
# Agents have a few connections of their own, so that slow knowledge does not block the routes that
# read and write. The database cancels statements that take longer.
CONNECTIONS = 2
STATEMENT_SECONDS = 0.5
# Including the wait for other questions; after that the fallback sentence is stored for good.
ANSWER_SECONDS = 6.0
# How many of the latest unanswered messages are answered.
QUESTIONS = 3


class KnowledgeAgent:
    """Answers one question of a tenant at a time, so that a slow tenant delays only itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Wait for a connection here: the pool gives up after a second.
        self._connections = asyncio.Semaphore(CONNECTIONS)

    async def answer(self, question: Question, _: Listener) -> Answer:
        """Answer each of the visitor's messages that the knowledge covers."""
        found: dict[str, entries.Match] = {}
        confidence = 0.0
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for text in (*question.earlier, question.text)[-QUESTIONS:]:
                    best = next(iter(await self._rank(question, text)), None)
                    confidence = max(confidence, best.confidence if best else 0.0)
                    if best is not None and best.confidence >= THRESHOLD:
                        found.setdefault(best.entry_id, best)
        except (TimeoutError, errors.Unavailable):
            log.warning("ranking_skipped")
        if not found:
            return Answer(None, "knowledge", confidence)
        answers = "\n\n".join(match.answer for match in found.values())
        return Answer(answers, "knowledge", confidence, tuple(found))

    async def _rank(self, question: Question, text: str) -> list[entries.Match]:
        turn = self._turns.setdefault(question.tenant_id, asyncio.Lock())
        await turn.acquire()
        loop = asyncio.get_running_loop()
        took = 0.0
        try:
            async with self._connections:
                started = loop.time()
                try:
                    return await entries.rank(
                        self._database, question.tenant_id, text, question.language
                    )
                finally:
                    took = loop.time() - started
        finally:
            # The next question waits as long as this one took, so that a tenant keeps the database
            # busy for at most half of the time.
            loop.call_later(took, turn.release)
