"""The agent that answers visitors: a protocol from a question to an answer."""

from collections.abc import Callable
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
    # Messages before it that have no answer either, oldest first.
    earlier: tuple[str, ...] = ()
    # 1, or more when a worker left the run behind, which may have paid for a model.
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and its source; without text the tenant's fallback sentence is sent."""

    text: str | None
    source: str
    confidence: float
    entries: tuple[str, ...] = ()


class Agent(Protocol):
    """May be slow: the caller holds no connection and no lock while it waits."""

    async def answer(self, question: Question, say: Callable[[str], None]) -> Answer:
        """`say` shows a piece of the answer to the visitor before the whole of it is known."""
