"""What to do with a question, given the entries that match it."""

from collections.abc import Awaitable, Callable

from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Decision, Match

SURE = 0.45
OFFERED = 0.1
SUGGESTIONS = 3


async def decide(
    search: Callable[[str], Awaitable[list[Match]]],
    text: str,
    language: Language,
    previous: str | None = None,
) -> Decision:
    """Answer it, offer what may have been meant, or neither."""
    matches = await search(text)
    best = matches[0].confidence if matches else 0.0
    if best >= SURE:
        return Decision(tuple(matches[:1]), confidence=best)
    offered = [match for match in matches if match.confidence >= OFFERED]
    return Decision((), tuple(offered[:SUGGESTIONS]), confidence=best)
