"""Consent: a tool that acts is called only after the visitor has confirmed that very call."""

from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

import orjson
import uuid_utils

from hlas.agent import Confirmation, Question
from hlas.knowledge.language import Language
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# The visitor sees all of a call: web/widget/consent.js cuts longer values.
LONGEST_VALUE = 400
LARGEST_CALL = 4096
NOT_SHOWN = f"Give a JSON object with at most {LONGEST_VALUE} characters for each argument."

# What became of a decision; "started": whether it was done is not known.
Result: TypeAlias = Literal["done", "failed", "declined", "started"]

QUESTION: Final[dict[Language, str]] = {"cs": "Mám to udělat?", "en": "Shall I do this?"}
REPORTS: Final[dict[Result, dict[Language, str]]] = {
    "done": {"cs": "Hotovo.", "en": "Done."},
    "failed": {
        "cs": "Bohužel se to nepodařilo.",
        "en": "I am sorry, that did not work.",
    },
    "declined": {"cs": "Dobře, neudělám to.", "en": "All right, I will not do it."},
    "started": {
        "cs": "Začal jsem s tím, ale nevím, zda se to podařilo. Raději si to ověřte u nás.",
        "en": "I started it, but I do not know whether it worked. Please check with us.",
    },
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A call that the visitor has just confirmed or declined."""

    tool: str
    arguments: dict[str, object]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["tool"], row["arguments"])


def is_shown_whole(arguments: dict[str, object]) -> bool:
    """Whether the visitor can read every character that the tool would be given."""
    whole = orjson.dumps(arguments).decode()
    texts = [*arguments, *(orjson.dumps(value).decode() for value in arguments.values())]
    # Not printable are control and bidirectional characters; JSON escapes some of them.
    is_readable = whole.isprintable() and "\\u00" not in whole
    return (
        is_readable
        and len(whole) <= LARGEST_CALL
        and max(map(len, texts), default=0) <= (LONGEST_VALUE)
    )


async def offer(
    operators: Database, question: Question, tool: str, title: str, arguments: dict[str, object]
) -> Confirmation:
    """Ask the visitor before the tool is called."""
    confirmation = Confirmation(str(uuid_utils.uuid7()), title, arguments)
    # A trial has no visitor to ask.
    if question.reply_to:
        await operators.execute(
            queries.add_confirmation,
            question.tenant_id,
            confirmation.id,
            question.conversation_id,
            tool,
            arguments,
        )
    return confirmation


async def decide(operators: Database, question: Question) -> Decision | None:
    """Take the visitor's decision, once; None: it was taken before, is too old, or another's."""
    row = await operators.one(
        queries.decide_confirmation,
        question.tenant_id,
        question.confirmed or question.declined,
        question.conversation_id,
        "confirmed" if question.confirmed else "declined",
    )
    return Decision.from_row(row) if row is not None else None


async def record(operators: Database, question: Question, result: Result) -> None:
    """What became of a confirmed call, for an attempt that comes after this one."""
    await operators.execute(queries.record_result, question.tenant_id, question.confirmed, result)


async def recall(operators: Database, question: Question) -> Result | None:
    """What became of the decision of this message; None: nothing was decided by it."""
    row = await operators.one(
        queries.read_confirmation,
        question.tenant_id,
        question.confirmed or question.declined,
        question.conversation_id,
    )
    if row is None or row["state"] == "asked":
        return None
    if row["state"] == "declined":
        return "declined"
    result: Result = row["result"] or "started"
    return result
