"""The agent that works offline: it answers from the tenant's own questions and answers."""

from hlas import knowledge
from hlas.agent import Answer, Question
from hlas.db import Database

# Below this a visitor is better served by the tenant's fallback sentence than by a guess.
THRESHOLD = 0.45


class KnowledgeAgent:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def answer(self, question: Question) -> Answer:
        found = await knowledge.rank(
            self._database, question.tenant_id, question.text, question.language
        )
        if not found:
            return Answer(None, "knowledge", 0.0)
        best = found[0]
        if best.confidence < THRESHOLD:
            return Answer(None, "knowledge", best.confidence)
        return Answer(best.answer, "knowledge", best.confidence, (best.entry_id,))
