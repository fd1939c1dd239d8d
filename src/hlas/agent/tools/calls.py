"""A call of a tool: who calls, what comes back, and its limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hlas.agent.prompts import Passage
from hlas.knowledge.language import Language

Outcome: TypeAlias = Literal["ok", "error", "timeout", "unknown", "invalid"]

LARGEST_RESULT = 8 * 1024
_CUT = "\n[cut: the rest is left out]"


@dataclass(frozen=True, slots=True)
class Caller:
    """For whom tools are called. No argument of a tool changes it."""

    tenant_id: str
    conversation_id: str
    run_id: str
    language: Language
    # There is no conversation: nothing may be recorded or done.
    is_trial: bool = False


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`text` is for the model, at most LARGEST_RESULT bytes; `passages` can be cited."""

    text: str
    outcome: Outcome
    passages: tuple[Passage, ...] = ()


class Numbers:
    """Numbers passages across an answer. What is found again keeps its number."""

    def __init__(self, supplied: Sequence[Passage] = ()) -> None:
        self._given = {one.entry_id: one.number for one in supplied}
        self._last = max((one.number for one in supplied), default=0)

    def give(self, entry_id: str) -> int:
        if entry_id not in self._given:
            self._last += 1
            self._given[entry_id] = self._last
        return self._given[entry_id]


def cut(text: str, largest: int = LARGEST_RESULT) -> str:
    """At most `largest` bytes of UTF-8, with a notice where some are left out."""
    data = text.encode(errors="replace")
    if len(data) <= largest:
        return data.decode()
    return data[: largest - len(_CUT)].decode(errors="ignore") + _CUT
