"""Ranking: which entries of a tenant's knowledge answer a question, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from hlas.knowledge.entries import Kind

# Likeness of meaning from -1 to 1, by the id of the entry.
Meaning: TypeAlias = Mapping[str, float]
SmallTalk: TypeAlias = Literal["greeting", "thanks", "goodbye", "assent", "robot", "mood", "help"]
# The confidence in an entry whose own question or wording is asked; no other reaches it.
EXACT = 1.0


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that may answer a question, with the probability that it does."""

    entry_id: str
    question: str
    answer: str
    confidence: float
    kind: Kind = "answer"
    url: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a question."""

    # Entries that answer it: one, or two where it has two topics. Empty: nothing is sure.
    matches: tuple[Match, ...] = ()
    # What the visitor may have meant, best first, at most three; empty if the answer is sure.
    suggestions: tuple[Match, ...] = ()
    # The question was understood through the one before it: tell the visitor which topic this is.
    is_follow_up: bool = False
    small_talk: SmallTalk | None = None
    # Of the best match.
    confidence: float = 0.0


class Semantic(Protocol):
    """Compares meanings; it may be away at any time."""

    async def compare(self, tenant_id: str, text: str) -> Meaning | None:
        """The entries that are nearest in meaning; None without an answer in time."""
