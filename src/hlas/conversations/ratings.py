"""What visitors think of answers: thumbs up or down, and why."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal, Self, TypeAlias
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from hlas import errors, payloads
from hlas.payloads import Text
from hlas.store.db import Confined, Database, Queries, Row
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


async def rate(
    database: Database, session: Session, message_id: UUID, new: NewRating
) -> int | None:
    """Rate an answer of the session's conversation; returns the visitor's message it answers.

    Also when the conversation is closed: visitors think of answers afterwards.
    """
    try:
        async with Confined(database, session.tenant_id).transaction() as connection:
            row = await connection.fetchrow(
                queries.find_answer, session.tenant_id, session.conversation_id, message_id
            )
            row = require_standing(session, row)
            if row["role"] is None:
                raise errors.MessageNotFound
            await connection.execute(
                queries.rate,
                session.tenant_id,
                session.conversation_id,
                message_id,
                new.rating,
                new.comment or "",
            )
    except asyncpg.ForeignKeyViolationError:
        # It was erased at this moment.
        raise errors.ConversationNotFound from None
    asked: int | None = row["asked"]
    return asked
