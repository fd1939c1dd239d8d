"""An agent that works offline: it answers from the tenant's own questions and answers."""

import asyncio
from weakref import WeakValueDictionary

from hlas import errors, log
from hlas.agent import Answer, Question
from hlas.knowledge import entries
from hlas.store.db import Database

# Below this confidence the tenant's fallback sentence is better than a guess.
THRESHOLD = 0.45
# Agents have a few connections of their own, so that slow knowledge does not block the routes that
# read and write. The database cancels statements that take longer.
CONNECTIONS = 2
STATEMENT_SECONDS = 0.5
# Including the wait; after that the visitor gets the fallback sentence.
ANSWER_SECONDS = 1.5


class KnowledgeAgent:
    """Answers one question of a tenant at a time, so that a slow tenant delays only itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def answer(self, question: Question) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._rank(question)
        except (TimeoutError, errors.Unavailable):
            log.warning("ranking_skipped")
            found = []
        if not found:
            return Answer(None, "knowledge", 0.0)
        best = found[0]
        if best.confidence < THRESHOLD:
            return Answer(None, "knowledge", best.confidence)
        return Answer(best.answer, "knowledge", best.confidence, (best.entry_id,))

    async def _rank(self, question: Question) -> list[entries.Match]:
        turn = self._turns.setdefault(question.tenant_id, asyncio.Lock())
        await turn.acquire()
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            return await entries.rank(
                self._database, question.tenant_id, question.text, question.language
            )
        finally:
            # The next question waits as long as this one took, so that a tenant keeps the database
            # busy for at most half of the time.
            loop.call_later(loop.time() - started, turn.release)
