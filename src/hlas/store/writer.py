"""Group commit: messages that arrive while a statement runs share the next one.

A lone message never waits for others, so an idle server adds no latency. Under load the messages
of a batch share the cost of one transaction. A caller gets its outcome only after the commit.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg
import uuid_utils

from hlas.background import Start, start_alone
from hlas.store.db import AWAY, CONNECT_SECONDS, STATEMENT_SECONDS, Queries, log_in
from hlas.store.drafts import CommitListener, Draft, Outcome, Refusal, Written
from hlas.store.logins import Logins

queries = Queries.beside(__file__)

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
# A statement costs as much as five messages in it. Under load, wait 1 ms so that more rows join the
# batch, unless it already has ENOUGH_ROWS (ADR-0005).
GATHER_SECONDS = 0.001
BUSY_RATE = 1000.0
COMPANY = 1.3
ENOUGH_ROWS = 32
QUIET_SECONDS = 0.05
SHORTEST_SECONDS = 0.001
QUEUE_ROWS = 4096
PATIENCE_SECONDS = 2.5
PATROL_SECONDS = 0.25
RETRY_SECONDS = 0.005
RECONNECT_SECONDS = 0.1
DRAIN_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class _Pending:
    """A draft whose caller waits for the outcome."""

    draft: Draft
    outcome: "asyncio.Future[Outcome]"
    deadline: float
    # It was sent, and the connection may break before we know whether it was committed.
    unsure: bool = False
    # Another process holds the lock of the conversation.
    locked: bool = False

    def settle(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


_Followers: TypeAlias = dict[_Pending, list[_Pending]]


class Writer:
    """One connection that runs one statement at a time; all that waits goes into the next one."""

    def __init__(
        self,
        logins: Logins,
        role: str,
        *,
        worker: str | None = None,
        on_batch: Callable[[int, int], None] | None = None,
        start: Start = start_alone,
        **connection_settings: str,
    ) -> None:
        """`start` runs the writer's loop; the service passes one that supervises it.

        Runs that visitors' messages start are owned by `worker`.
        """
        self._logins = logins
        self._role = role
        self._worker = worker or str(uuid_utils.uuid4())
        self.listener: CommitListener | None = None
        self._connection_settings = connection_settings
        self._on_batch = on_batch
        self._waiting: deque[_Pending] = deque()
        self._writing: list[_Pending] = []
        # Moving averages: rows per statement, rows per second.
        self._company = 0.0
        self._rate = 0.0
        self._taken_at = time.monotonic()
        self._wake = asyncio.Event()
        self._patrolling: asyncio.TimerHandle | None = None
        self._connection: asyncpg.Connection | None = None
        self._closing = False
        self._task = start("writer", self._run)

    @property
    def depth(self) -> int:
        return len(self._waiting)

    async def write(self, draft: Draft) -> Outcome:
        """Store the draft, or replay what its key stored; returns after the commit."""
        if self._closing or len(self._waiting) >= QUEUE_ROWS:
            return Refusal.UNAVAILABLE
        loop = asyncio.get_running_loop()
        pending = _Pending(draft, loop.create_future(), loop.time() + PATIENCE_SECONDS)
        self._waiting.append(pending)
        self._wake.set()
        if self._patrolling is None:
            self._patrolling = self._call_patrol(loop)
        return await pending.outcome

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing = True
        self._wake.set()
        try:
            await asyncio.wait_for(self._task, DRAIN_SECONDS)
        except TimeoutError:
            self._expire(float("inf"))
        if self._patrolling is not None:
            self._patrolling.cancel()
        await self._disconnect()

    async def _run(self) -> None:
        # Connect before the first visitor comes; a failure is reported by the first message.
        with suppress(Exception):
            await self._connect()
        while not (self._closing and not self._waiting):
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._gather()
            batch = self._writing = self._take()
            self._note(len(batch))
            try:
                again = await self._commit(batch) if batch else []
            except Exception as error:  # noqa: BLE001  # one batch must not stop the writer
                again = []
                for pending in batch:
                    pending.fail(error)
            self._writing = []
            self._requeue(again)
            if batch and len(again) == len(batch):
                await asyncio.sleep(RETRY_SECONDS)

    async def _gather(self) -> None:
        """Under load, wait for more rows."""
        if time.monotonic() - self._taken_at > QUIET_SECONDS:
            self._company = self._rate = 0.0
        busy = self._company > COMPANY and self._rate > BUSY_RATE
        if busy and len(self._waiting) < ENOUGH_ROWS and not self._closing:
            await asyncio.sleep(GATHER_SECONDS)

    def _note(self, rows: int) -> None:
        """Update the moving averages."""
        now = time.monotonic()
        rate = rows / max(now - self._taken_at, SHORTEST_SECONDS)
        self._taken_at = now
        self._rate += (rate - self._rate) / 8
        self._company += (rows - self._company) / 8

    def _requeue(self, again: list[_Pending]) -> None:
        # In front they keep their order, but a batch of locked ones would hold up all others.
        if sum(pending.locked for pending in again) > BATCH_ROWS // 2:
            self._waiting.extend(again)
        else:
            self._waiting.extendleft(reversed(again))

    def _call_patrol(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
        # In a context of its own: it is not about the request that happens to start it.
        return loop.call_later(PATROL_SECONDS, self._patrol, context=Context())

    def _patrol(self) -> None:
        """Nobody waits longer than PATIENCE_SECONDS, even if a statement hangs."""
        loop = asyncio.get_running_loop()
        self._expire(loop.time())
        busy = self._waiting or self._writing
        self._patrolling = self._call_patrol(loop) if busy else None

    def _expire(self, now: float) -> None:
        """Answer those whose deadline has passed; a retry will find what was committed."""
        for pending in (*self._writing, *self._waiting):
            if pending.deadline <= now:
                in_progress = pending.locked and pending.draft.key is not None
                pending.settle(Refusal.IN_PROGRESS if in_progress else Refusal.UNAVAILABLE)
        self._waiting = deque(pending for pending in self._waiting if not pending.outcome.done())

    def _take(self) -> list[_Pending]:
        batch: list[_Pending] = []
        characters = 0
        while self._waiting and len(batch) < BATCH_ROWS and characters < BATCH_CHARACTERS:
            pending = self._waiting.popleft()
            # A caller that has its answer, or has left, gets no message that it does not know of.
            if not pending.outcome.done():
                characters += len(pending.draft.content) + len(pending.draft.meta)
                batch.append(pending)
        return batch

    async def _commit(self, batch: list[_Pending]) -> list[_Pending]:
        """Write a batch; returns what has to be tried again."""
        try:
            connection = await self._connect()
        except AWAY:
            await asyncio.sleep(RECONNECT_SECONDS)
            return batch
        leaders, followers = _group(batch)
        if self._on_batch is not None:
            self._on_batch(len(leaders), len(self._waiting))
        try:
            return await self._write(connection, leaders, followers)
        except AWAY:
            await self._disconnect()
            return _keep_retryable(batch)
        except asyncpg.PostgresError:
            for leader in leaders:
                leader.unsure = False
            return await self._write_one_by_one(leaders, followers)

    async def _write_one_by_one(
        self, leaders: list[_Pending], followers: _Followers
    ) -> list[_Pending]:
        """A bad row fails alone: its neighbours are written without it."""
        again: list[_Pending] = []
        for position, leader in enumerate(leaders):
            if leader.outcome.done():
                again += followers.get(leader, ())
                continue
            rest = [one for later in leaders[position:] for one in _family(later, followers)]
            try:
                connection = await self._connect()
                again += await self._write(connection, [leader], followers)
            except AWAY:
                await self._disconnect()
                return again + _keep_retryable(rest)
            except asyncpg.PostgresError as error:
                for pending in _family(leader, followers):
                    pending.fail(error)
        return again

    async def _write(
        self, connection: asyncpg.Connection, leaders: list[_Pending], followers: _Followers
    ) -> list[_Pending]:
        for leader in leaders:
            leader.unsure = True
        columns = _columns([leader.draft for leader in leaders])
        rows = await connection.fetch(
            queries.write, self._worker, *columns, timeout=STATEMENT_SECONDS
        )
        again = _settle(leaders, followers, [row for row in rows if row["n"] >= 0])
        if self.listener is not None:
            _inform(self.listener, leaders, rows)
        return again

    async def _connect(self) -> asyncpg.Connection:
        """The open connection, or a new one."""
        if self._connection is None or self._connection.is_closed():
            # Durability, isolation and timeouts are settings of the role (migrations/roles.py).
            self._connection = await log_in(
                self._logins,
                self._role,
                seconds=CONNECT_SECONDS,
                **{"application_name": "hlas writer", **self._connection_settings},
            )
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*AWAY):
                connection.terminate()


def _group(batch: Iterable[_Pending]) -> tuple[list[_Pending], _Followers]:
    """One message per key goes to the database; equal keys of the batch follow its outcome."""
    leaders: list[_Pending] = []
    followers: _Followers = {}
    by_key: dict[tuple[str, str, str, int | None], _Pending] = {}
    for pending in batch:
        draft = pending.draft
        if draft.key is None:
            leaders.append(pending)
            continue
        # With the generation: a revoked session must not get the response of a valid one.
        identity = (draft.tenant_id, draft.conversation_id, draft.key, draft.generation)
        leader = by_key.setdefault(identity, pending)
        if leader is pending:
            leaders.append(pending)
        else:
            followers.setdefault(leader, []).append(pending)
    return leaders, followers


def _family(leader: _Pending, followers: _Followers) -> tuple[_Pending, ...]:
    return (leader, *followers.get(leader, ()))


def _columns(drafts: list[Draft]) -> tuple[list[object], ...]:
    return (
        [draft.tenant_id for draft in drafts],
        [draft.conversation_id for draft in drafts],
        [draft.generation for draft in drafts],
        [draft.message_id for draft in drafts],
        [draft.role for draft in drafts],
        [draft.content for draft in drafts],
        [draft.meta for draft in drafts],
        [draft.key for draft in drafts],
        [draft.request_hash for draft in drafts],
        [draft.response for draft in drafts],
        [draft.run_id for draft in drafts],
        [draft.attempt for draft in drafts],
    )


def _keep_retryable(batch: list[_Pending]) -> list[_Pending]:
    """A lost connection may have committed: only a key makes a retry safe."""
    kept = []
    for pending in batch:
        pending.locked = False
        if pending.draft.key is None and pending.unsure:
            pending.settle(Refusal.UNAVAILABLE)
        else:
            kept.append(pending)
    return kept


def _settle(
    leaders: list[_Pending], followers: _Followers, rows: list[asyncpg.Record]
) -> list[_Pending]:
    """Give every caller its outcome; returns those whose conversation is locked."""
    created = next(int(row["response"]) for row in rows if row["n"] == 0)
    others = {row["n"]: row for row in rows if row["n"] != 0}
    if created + len(others) != len(leaders):
        raise asyncpg.InternalClientError("the database did not account for every message")
    again: list[_Pending] = []
    for number, leader in enumerate(leaders, start=1):
        row = others.get(number)
        if row is None:
            draft = leader.draft
            leader.settle(Written(draft.response, replayed=False))
            _replay(followers.get(leader, ()), draft.request_hash, draft.response)
        elif row["outcome"] == "stored":
            _replay(_family(leader, followers), row["request_hash"], row["response"])
        elif row["outcome"] == "locked":
            leader.unsure = False
            for pending in _family(leader, followers):
                pending.locked = True
                again.append(pending)
        else:
            for pending in _family(leader, followers):
                pending.settle(Refusal(row["outcome"]))
    return again


def _inform(listener: CommitListener, leaders: list[_Pending], rows: list[asyncpg.Record]) -> None:
    others = {row["n"] for row in rows}
    for number, leader in enumerate(leaders, start=1):
        if number not in others:
            listener.on_message(leader.draft.tenant_id, leader.draft.conversation_id)
    for row in rows:
        if row["outcome"] == "run":
            listener.on_run(row["response"])
        elif row["outcome"] == "waiting":
            listener.on_waiting_run()


def _replay(family: Iterable[_Pending], stored_hash: bytes | None, response: str) -> None:
    for pending in family:
        if pending.draft.request_hash == stored_hash:
            # Equal to its own response: an earlier try of this same request stored it, so this is
            # the first answer and no replay.
            replayed = response != pending.draft.response
            pending.settle(Written(response, replayed=replayed))
        else:
            pending.settle(Refusal.KEY_CONFLICT)
