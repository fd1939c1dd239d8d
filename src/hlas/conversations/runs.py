"""Runs: answers in the making. A run is claimed before anything is paid for, and leased."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self
from uuid import UUID

import asyncpg
import orjson

from hlas.store.db import Confined, Database, Queries, Row

queries = Queries.beside(__file__)

# The most that one statement claims.
CLAIMED = 32
# What a run reads of the visitor's messages: the last ones.
TEXTS = 20
TEXT_BYTES = 64 * 1024
# Earlier ones that were answered: the visitor may ask a follow-up.
CONTEXT_TEXTS = 3

Ending = Literal["stopped", "cancelled"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that this worker owns, until its lease ends."""

    tenant_id: str
    # That of the visitor's message that started it, if one did.
    id: str
    conversation_id: str
    # It answers the visitor's messages from first_seq to reply_to.
    first_seq: int
    reply_to: int
    # The takeovers before it began; write_messages.sql compares it.
    epoch: int
    attempt: int
    # Earlier attempts in which the agent was asked; the first attempt always counts.
    asked: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(**orjson.loads(text))

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(**dict(row))


@dataclass(frozen=True, slots=True)
class Briefing:
    """What a run has to answer, and what its tenant says where there is no answer."""

    texts: tuple[str, ...]
    # Of the visitor's last message.
    metadata: Mapping[str, object]
    # What the visitor asked before these, oldest first.
    context: tuple[str, ...]
    fallback_text: str | None
    # By language; fallback_text is for the others.
    fallback_texts: Mapping[str, str]
    language: str | None
    # The tenant's agent has a language model.
    has_model: bool
    # The visitor wants no more of the answer.
    is_stopping: bool
    # The run is still this worker's, its tenant active and its conversation open.
    is_wanted: bool


class FrameRow(NamedTuple):
    """Frames of a run, as JSON lines; `number` is that of the first one."""

    tenant_id: str
    run_id: str
    attempt: int
    number: int
    frames: str


async def claim(operators: Database, worker: str, held: Sequence[Run] = ()) -> list[Run]:
    """Take over runs that nobody works on; not those that this worker holds."""
    rows = await operators.all(queries.claim_runs, worker, CLAIMED, [run.id for run in held])
    return [Run.from_row(row) for row in rows]


async def start(database: Database, tenant_id: str, conversation_id: str) -> None:
    """Let a run wait for visitors' messages that have none; any worker may claim it."""
    await database.execute(queries.start_run, tenant_id, conversation_id)


async def start_within(
    connection: asyncpg.Connection, tenant_id: UUID, conversation_id: UUID
) -> None:
    """The same, in a transaction."""
    await connection.execute(queries.start_run, tenant_id, conversation_id)


async def cancel(connection: asyncpg.Connection, tenant_id: UUID, conversation_id: UUID) -> None:
    """End the runs of a conversation without an answer."""
    await connection.execute(queries.cancel_runs, tenant_id, conversation_id)


async def renew(operators: Database, worker: str, held: Sequence[Run]) -> list[Run]:
    """Keep the runs that are worked on, and return those that are over.

    A failed run is left to expire, so that another worker claims it.
    """
    rows = await operators.all(
        queries.renew_leases,
        worker,
        [run.tenant_id for run in held],
        [run.id for run in held],
        [run.attempt for run in held],
    )
    over = {row["id"] for row in rows}
    return [run for run in held if run.id in over]


async def release(operators: Database, worker: str) -> None:
    await operators.execute(queries.release_runs, worker)


async def count_attempt(operators: Database, run: Run, worker: str) -> None:
    """The agent is about to be asked."""
    await operators.execute(queries.count_attempt, run.tenant_id, run.id, worker, run.attempt)


async def end(operators: Database, run: Run, worker: str, state: Ending) -> None:
    """End a run that stores no message."""
    await operators.execute(queries.end_run, run.tenant_id, run.id, worker, run.attempt, state)


async def brief(database: Database, run: Run, worker: str, *, texts: int = TEXTS) -> Briefing:
    """What a run has to answer; `texts=0` is for its state alone."""
    row = await database.one(
        queries.read_run,
        run.tenant_id,
        run.id,
        run.conversation_id,
        run.first_seq,
        run.reply_to,
        texts,
        TEXT_BYTES,
        min(texts, CONTEXT_TEXTS),
    )
    assert row is not None
    return Briefing(
        texts=tuple(row["texts"] or ()),
        metadata=row["metadata"] or {},
        context=tuple(row["context"] or ()),
        fallback_text=row["fallback_text"],
        fallback_texts=row["fallback_texts"] or {},
        language=row["language"],
        has_model=bool(row["has_model"]),
        is_stopping=bool(row["is_stopping"]),
        is_wanted=(row["state"], row["owner"], row["attempt"]) == ("running", worker, run.attempt)
        and bool(row["is_active"])
        and row["status"] == "open",
    )


async def store_trace(
    operators: Database, run: Run, worker: str, trace: Sequence[Mapping[str, object]]
) -> None:
    """What happened in a run, for a client that may see it."""
    await operators.execute(queries.store_trace, run.tenant_id, run.id, worker, trace)


async def stop(database: Database, tenant_id: str, conversation_id: str) -> None:
    """Ask the owner of the run under way to end it."""
    confined = Confined(database, tenant_id)
    await confined.execute(queries.stop_run, tenant_id, conversation_id)


async def write_frames(operators: Database, rows: Sequence[FrameRow]) -> None:
    await operators.execute(
        queries.write_frames, *(list(column) for column in zip(*rows, strict=True))
    )


async def delete_frames(operators: Database) -> None:
    """Delete the frames of runs that have ended: their answer is in the log."""
    await operators.execute(queries.delete_frames)
