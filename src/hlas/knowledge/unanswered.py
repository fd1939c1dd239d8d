"""Questions that the knowledge did not answer: references to visitors' messages, never copies."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import asyncpg

from hlas.store.db import Confined, Database, Queries

queries = Queries.beside(__file__)

# Weakest first: a question keeps the strongest.
Reason: TypeAlias = Literal["fallback", "none_of_these", "thumbs_down"]


async def record(
    database: Database,
    tenant_id: str,
    conversation_id: str,
    seq: int,
    reason: Reason,
    entries: Sequence[str] = (),
) -> None:
    """Note that the visitor's message `seq` got no good answer; `entries` were offered or sent."""
    # The conversation may be erased at this moment.
    with suppress(asyncpg.ForeignKeyViolationError):
        await database.execute(
            queries.record_question, tenant_id, conversation_id, seq, reason, list(entries)
        )


async def take_back(
    database: Database, tenant_id: str, conversation_id: str, seq: int, reason: Reason
) -> None:
    """Undo `record`, unless the question has a stronger reason."""
    confined = Confined(database, tenant_id)
    await confined.execute(queries.take_back, tenant_id, conversation_id, seq, reason)
