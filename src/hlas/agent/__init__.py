"""Who answers visitors: anything that takes a question and gives an answer."""

from dataclasses import dataclass
from typing import Protocol

from hlas.knowledge.language import Language


@dataclass(frozen=True, slots=True)
class Question:
    """A visitor's last message, and the language to answer in."""

    tenant_id: str
    conversation_id: str
    text: str
    language: Language


@dataclass(frozen=True, slots=True)
class Answer:
    """What to say and where it comes from; no text means: not known, say the tenant's fallback."""

    text: str | None
    source: str
    confidence: float
    entries: tuple[str, ...] = ()


class Agent(Protocol):
    """May take its time: whoever asks holds no connection and no lock meanwhile."""

    async def answer(self, question: Question) -> Answer: ...
