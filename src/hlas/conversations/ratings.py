"""What visitors think of answers: thumbs up or down, and why."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Self, TypeAlias
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from hlas import errors, payloads
from hlas.payloads import Text
from hlas.store.db import Queries, Row
from hlas.visitors.sessions import require_standing
from hlas.visitors.tokens import Session

queries = Queries.beside(__file__)

Thumb: TypeAlias = Literal["up", "down"]
LONGEST_COMMENT = 1000

_Comment = Annotated[
    Text, StringConstraints(strip_whitespace=True, max_length=LONGEST_COMMENT, strict=True)
]


class NewRating(BaseModel):
    """A visitor's opinion of an answer. It replaces an earlier one."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rating: Thumb
    comment: _Comment | None = None

    @classmethod
    def parse(cls, body: bytes) -> "NewRating":
        try:
            return cls.model_validate(payloads.loads(body))
        except ValidationError as error:
            raise payloads.invalid(error) from None


@dataclass(frozen=True, slots=True)
class Rating:
    rating: Thumb
    comment: str
    updated_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self | None:
        """The rating of a message, whose columns are those of an outer join."""
        if row["rating"] is None:
            return None
        return cls(row["rating"], row["comment"], row["rated_at"])


@dataclass(frozen=True, slots=True)
class Rated:
    """The answer that was rated."""

    # The visitor's message that it is for, if the assistant gave it.
    asked: int | None
    # What it was taken from.
    entries: tuple[str, ...]


async def rate(
    connection: asyncpg.Connection, session: Session, message_id: UUID, new: NewRating
) -> Rated:
    """Rate an answer of the session's conversation; others that rate it wait for the transaction.

    Also when the conversation is closed: visitors think of answers afterwards.
    """
    key = (session.tenant_id, session.conversation_id, message_id)
    row = require_standing(session, await connection.fetchrow(queries.find_answer, *key))
    if row["role"] is None:
        raise errors.MessageNotFound
    await connection.execute(queries.rate, *key, new.rating, new.comment or "")
    return Rated(row["asked"], tuple(row["entries"] or ()))
