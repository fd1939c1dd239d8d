"""Runs: answers in the making. A run is claimed before anything is paid for, and leased."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple, Self

import orjson

from hlas.store.db import Confined, Database, Queries, Row

queries = Queries.beside(__file__)

# write_messages.sql has the same figure.
LEASE = timedelta(seconds=3)
CLAIMED = 32

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
    fallback_text: str | None
    language: str | None
    # The tenant's agent has a language model.
    has_model: bool
    # The visitor wants no more of the answer.
    is_stopping: bool
    # The run is still this worker's.
    is_ours: bool


class FrameRow(NamedTuple):
    """Frames of a run, as JSON lines; `number` is that of the first one."""

    tenant_id: str
    run_id: str
    attempt: int
    number: int
    frames: str


async def claim(operators: Database, worker: str) -> list[Run]:
    """Take over runs that nobody works on."""
    rows = await operators.all(queries.claim_runs, worker, CLAIMED, LEASE)
    return [Run.from_row(row) for row in rows]


async def start(database: Database, tenant_id: str, conversation_id: str) -> None:
    """Let a run wait for visitors' messages that have none; any worker may claim it."""
    await database.execute(queries.start_run, tenant_id, conversation_id)


async def renew(operators: Database, worker: str, held: Sequence[Run]) -> None:
    """Keep the runs that are worked on, and no others: a run that failed is for anybody."""
    await operators.execute(
        queries.renew_leases,
        worker,
        [run.tenant_id for run in held],
        [run.id for run in held],
        [run.attempt for run in held],
        LEASE,
    )


async def release(operators: Database, worker: str) -> None:
    await operators.execute(queries.release_runs, worker)


async def end(operators: Database, run: Run, worker: str, state: Ending) -> None:
    """End a run that stores no message."""
    await operators.execute(queries.end_run, run.tenant_id, run.id, worker, run.attempt, state)


async def brief(database: Database, run: Run, worker: str) -> Briefing:
    row = await database.one(
        queries.read_run,
        run.tenant_id,
        run.id,
        run.conversation_id,
        run.first_seq,
        run.reply_to,
    )
    assert row is not None
    return Briefing(
        texts=tuple(row["texts"] or ()),
        metadata=row["metadata"] or {},
        fallback_text=row["fallback_text"],
        language=row["language"],
        has_model=bool(row["has_model"]),
        is_stopping=bool(row["is_stopping"]),
        is_ours=(row["state"], row["owner"], row["attempt"]) == ("running", worker, run.attempt),
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
