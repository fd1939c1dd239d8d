"""Group commit: requests that arrive while a statement is under way share the next one.

A lone message never waits for others, so an idle server adds no latency, and under load the cost
of a transaction is shared by all the messages in it. A caller hears back only after the commit.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final, Protocol

import asyncpg

from hlas import errors
from hlas.store.db import AWAY, CONNECT_SECONDS, STATEMENT_SECONDS, log_in
from hlas.store.logins import Logins

WRITE: Final = "select * from write_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
# A statement costs as much as five messages in it. Where they come in company, and so many that
# another is due, it pays for all to let it join, unless there are enough already; see ADR-0005.
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

REFUSALS: Final[dict[str, type[errors.HlasError]]] = {
    "conversation_not_found": errors.ConversationNotFound,
    "conversation_closed": errors.ConversationClosed,
    "tenant_inactive": errors.TenantInactive,
    "session_revoked": errors.SessionRevoked,
}


@dataclass(frozen=True, slots=True)
class Written:
    """The stored response, and whether an earlier request stored it."""

    response: str
    replayed: bool


class Waiter(Protocol):
    """Who is told what became of a draft: a future, or what does the same for less."""

    def done(self) -> bool: ...

    def set_result(self, written: Written, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


@dataclass(slots=True, eq=False)
class Draft:
    """One message on its way into the database."""

    tenant_id: str
    conversation_id: str
    generation: int
    message_id: str
    role: str
    content: str
    meta: str
    response: str
    key: str | None = None
    request_hash: bytes | None = None
    deadline: float = 0.0
    # Sent, and nobody has said yet what became of it.
    unsure: bool = False
    # The database said: another process is writing to this conversation.
    locked: bool = False
    waiter: Waiter = field(init=False)

    def succeed(self, written: Written) -> None:
        if not self.waiter.done():
            self.waiter.set_result(written)

    def fail(self, error: Exception) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)


class Writer:
    """One connection, one statement at a time, everything that waits goes into the next."""

    def __init__(
        self,
        logins: Logins,
        role: str,
        *,
        on_batch: Callable[[int, int], None] | None = None,
        **connection_settings: str,
    ) -> None:
        self._logins = logins
        self._role = role
        self._connection_settings = connection_settings
        self._on_batch = on_batch
        self._waiting: deque[Draft] = deque()
        self._writing: list[Draft] = []
        # Of late: messages in a statement, messages a second.
        self._company = 0.0
        self._rate = 0.0
        self._taken_at = time.monotonic()
        self._wake = asyncio.Event()
        self._patrolling: asyncio.TimerHandle | None = None
        self._connection: asyncpg.Connection | None = None
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="writer")

    @property
    def depth(self) -> int:
        return len(self._waiting)

    async def write(self, draft: Draft) -> Written:
        """Store the draft, or replay what its key stored; returns after the commit."""
        waiter: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self.submit(draft, waiter)
        return await waiter

    @property
    def has_room(self) -> bool:
        return not self._closing and len(self._waiting) < QUEUE_ROWS

    def submit(self, draft: Draft, waiter: Waiter) -> None:
        """The same for a caller that does not wait itself; it is told after the commit."""
        if not self.has_room:
            raise errors.Unavailable
        loop = asyncio.get_running_loop()
        draft.waiter = waiter
        draft.deadline = loop.time() + PATIENCE_SECONDS
        self._waiting.append(draft)
        self._wake.set()
        if self._patrolling is None:
            self._patrolling = self._call_patrol(loop)

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
        # Connected before the first visitor comes; what fails here, their message will report.
        with suppress(Exception):
            await self._connected()
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
            except Exception as error:  # noqa: BLE001  # the writer outlives whatever one batch meets
                again = []
                for draft in batch:
                    draft.fail(error)
            self._writing = []
            self._requeue(again)
            if batch and len(again) == len(batch):
                await asyncio.sleep(RETRY_SECONDS)

    async def _gather(self) -> None:
        if time.monotonic() - self._taken_at > QUIET_SECONDS:
            self._company = self._rate = 0.0
        busy = self._company > COMPANY and self._rate > BUSY_RATE
        if busy and len(self._waiting) < ENOUGH_ROWS and not self._closing:
            await asyncio.sleep(GATHER_SECONDS)

    def _note(self, rows: int) -> None:
        now = time.monotonic()
        rate = rows / max(now - self._taken_at, SHORTEST_SECONDS)
        self._taken_at = now
        self._rate += (rate - self._rate) / 8
        self._company += (rows - self._company) / 8

    def _requeue(self, again: list[Draft]) -> None:
        # In front they keep their order, but a whole batch of locked ones would hold up the rest.
        if sum(draft.locked for draft in again) > BATCH_ROWS // 2:
            self._waiting.extend(again)
        else:
            self._waiting.extendleft(reversed(again))

    def _call_patrol(self, loop: asyncio.AbstractEventLoop) -> asyncio.TimerHandle:
        # Outside of the request that happens to arm it: it speaks for all of them.
        return loop.call_later(PATROL_SECONDS, self._patrol, context=Context())

    def _patrol(self) -> None:
        """Nobody waits longer than patience allows, whatever a statement is stuck in."""
        loop = asyncio.get_running_loop()
        self._expire(loop.time())
        busy = self._waiting or self._writing
        self._patrolling = self._call_patrol(loop) if busy else None

    def _expire(self, now: float) -> None:
        """Answer those who have waited long enough; their retry will find what happened."""
        for draft in (*self._writing, *self._waiting):
            if draft.deadline <= now:
                in_progress = draft.locked and draft.key is not None
                draft.fail(errors.IdempotencyInProgress() if in_progress else errors.Unavailable())
        self._waiting = deque(draft for draft in self._waiting if not draft.waiter.done())

    def _take(self) -> list[Draft]:
        batch: list[Draft] = []
        characters = 0
        while self._waiting and len(batch) < BATCH_ROWS and characters < BATCH_CHARACTERS:
            draft = self._waiting.popleft()
            # Who was answered meanwhile, or has left, gets no message that nobody knows of.
            if not draft.waiter.done():
                characters += len(draft.content) + len(draft.meta)
                batch.append(draft)
        return batch

    async def _commit(self, batch: list[Draft]) -> list[Draft]:
        """Write a batch; returns the drafts that have to be tried again."""
        try:
            connection = await self._connected()
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
            return _retryable(batch)
        except asyncpg.PostgresError:
            for leader in leaders:
                leader.unsure = False
            return await self._one_by_one(leaders, followers)

    async def _one_by_one(
        self, leaders: list[Draft], followers: dict[Draft, list[Draft]]
    ) -> list[Draft]:
        """A bad row fails alone: its neighbours are written without it."""
        again: list[Draft] = []
        for position, leader in enumerate(leaders):
            if leader.waiter.done():
                again += followers.get(leader, ())
                continue
            rest = [draft for one in leaders[position:] for draft in (one, *followers.get(one, ()))]
            try:
                connection = await self._connected()
                again += await self._write(connection, [leader], followers)
            except AWAY:
                await self._disconnect()
                return again + _retryable(rest)
            except asyncpg.PostgresError as error:
                for draft in (leader, *followers.get(leader, ())):
                    draft.fail(error)
        return again

    async def _write(
        self,
        connection: asyncpg.Connection,
        leaders: list[Draft],
        followers: dict[Draft, list[Draft]],
    ) -> list[Draft]:
        for draft in leaders:
            draft.unsure = True
        rows = await connection.fetch(WRITE, *_columns(leaders), timeout=STATEMENT_SECONDS)
        return _answer(leaders, followers, rows)

    async def _connected(self) -> asyncpg.Connection:
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


def _group(batch: Iterable[Draft]) -> tuple[list[Draft], dict[Draft, list[Draft]]]:
    """One draft for each key goes to the database; equal keys of the batch follow its outcome."""
    leaders: list[Draft] = []
    followers: dict[Draft, list[Draft]] = {}
    by_key: dict[tuple[str, str, str, int], Draft] = {}
    for draft in batch:
        if draft.key is None:
            leaders.append(draft)
            continue
        # With the generation: a signed-out token must not get the answer of one that stands.
        identity = (draft.tenant_id, draft.conversation_id, draft.key, draft.generation)
        leader = by_key.setdefault(identity, draft)
        if leader is draft:
            leaders.append(draft)
        else:
            followers.setdefault(leader, []).append(draft)
    return leaders, followers


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
    )


def _retryable(batch: list[Draft]) -> list[Draft]:
    """Nobody knows what a lost connection committed; only a key makes another try safe."""
    kept = []
    for draft in batch:
        draft.locked = False
        if draft.key is None and draft.unsure:
            draft.fail(errors.Unavailable())
        else:
            kept.append(draft)
    return kept


def _answer(
    leaders: list[Draft], followers: dict[Draft, list[Draft]], rows: list[asyncpg.Record]
) -> list[Draft]:
    """Tell every caller its outcome; returns those whose conversation was busy elsewhere."""
    created = next(int(row["response"]) for row in rows if row["n"] == 0)
    others = {row["n"]: row for row in rows if row["n"] != 0}
    if created + len(others) != len(leaders):
        raise asyncpg.InternalClientError("the database did not account for every message")
    again: list[Draft] = []
    for number, leader in enumerate(leaders, start=1):
        row = others.get(number)
        family = followers.get(leader, ())
        if row is None:
            leader.succeed(Written(leader.response, replayed=False))
            _replay(family, leader.request_hash, leader.response)
        elif row["outcome"] == "stored":
            _replay((leader, *family), row["request_hash"], row["response"])
        elif row["outcome"] == "locked":
            leader.unsure = False
            again += (leader, *family)
            for draft in (leader, *family):
                draft.locked = True
        else:
            for draft in (leader, *family):
                draft.fail(REFUSALS[row["outcome"]]())
    return again


def _replay(drafts: Iterable[Draft], stored_hash: bytes | None, response: str) -> None:
    for draft in drafts:
        if draft.request_hash == stored_hash:
            # Its own response was stored by a try that never heard back: no replay, but the first.
            draft.succeed(Written(response, replayed=response != draft.response))
        else:
            draft.fail(errors.IdempotencyKeyConflict())
