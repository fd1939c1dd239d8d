"""Group commit: requests that arrive while a statement is under way share the next one.

Nothing waits for a timer, so an idle server adds no latency, and under load the cost of a
transaction is shared by all the messages in it. A caller hears back only after the commit.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import asyncpg

from hlas import errors
from hlas.db import AWAY, CONNECT_SECONDS, STATEMENT_SECONDS, connect

WRITE: Final = "select * from write_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
QUEUE_ROWS = 4096
PATIENCE_SECONDS = 2.5
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
    attempted: bool = False
    done: asyncio.Future[Written] = field(init=False)

    def succeed(self, written: Written) -> None:
        if not self.done.done():
            self.done.set_result(written)

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Writer:
    """One connection, one statement at a time, everything that waits goes into the next."""

    def __init__(
        self,
        url: str,
        role: str,
        *,
        on_batch: Callable[[int, int], None] | None = None,
        **connection_settings: str,
    ) -> None:
        self._url = url
        self._role = role
        self._connection_settings = connection_settings
        self._on_batch = on_batch
        self._waiting: deque[Draft] = deque()
        self._wake = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="writer")

    @property
    def depth(self) -> int:
        return len(self._waiting)

    async def write(self, draft: Draft) -> Written:
        """Store the draft, or replay what its key stored; returns after the commit."""
        if self._closing or len(self._waiting) >= QUEUE_ROWS:
            raise errors.Unavailable
        loop = asyncio.get_running_loop()
        draft.done = loop.create_future()
        draft.deadline = loop.time() + PATIENCE_SECONDS
        self._waiting.append(draft)
        self._wake.set()
        return await draft.done

    async def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing = True
        self._wake.set()
        try:
            await asyncio.wait_for(self._task, DRAIN_SECONDS)
        except TimeoutError:
            self._expire(float("inf"))
        await self._disconnect()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not (self._closing and not self._waiting):
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._expire(loop.time())
            batch = self._take()
            if not batch:
                continue
            try:
                again = await self._commit(batch)
            except Exception as error:  # noqa: BLE001  # the writer outlives whatever one batch meets
                for draft in batch:
                    draft.fail(error)
                continue
            if again:
                self._waiting.extendleft(reversed(again))
                await asyncio.sleep(RETRY_SECONDS)

    def _expire(self, now: float) -> None:
        """Answer those who have waited long enough; their retry will find what happened."""
        kept: deque[Draft] = deque()
        for draft in self._waiting:
            if draft.deadline > now:
                kept.append(draft)
            elif draft.attempted and draft.key is not None and self._connection is not None:
                draft.fail(errors.IdempotencyInProgress())
            else:
                draft.fail(errors.Unavailable())
        self._waiting = kept

    def _take(self) -> list[Draft]:
        batch: list[Draft] = []
        characters = 0
        while self._waiting and len(batch) < BATCH_ROWS and characters < BATCH_CHARACTERS:
            draft = self._waiting.popleft()
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
            return await self._one_by_one(leaders, followers)

    async def _one_by_one(
        self, leaders: list[Draft], followers: dict[Draft, list[Draft]]
    ) -> list[Draft]:
        """A bad row fails alone: its neighbours are written without it."""
        again: list[Draft] = []
        for position, leader in enumerate(leaders):
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
            draft.attempted = True
        rows = await connection.fetch(WRITE, *_columns(leaders), timeout=STATEMENT_SECONDS)
        return _answer(leaders, followers, rows)

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(
                self._url,
                self._role,
                seconds=CONNECT_SECONDS,
                **{
                    "application_name": "hlas writer",
                    # A promise to the visitor: what was acknowledged is on disk.
                    "synchronous_commit": "on",
                    # The function relies on a new snapshot for each of its statements.
                    "default_transaction_isolation": "read committed",
                    "lock_timeout": "1s",
                    **self._connection_settings,
                },
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
    by_key: dict[tuple[str, str, str], Draft] = {}
    for draft in batch:
        if draft.key is None:
            leaders.append(draft)
            continue
        leader = by_key.setdefault((draft.tenant_id, draft.conversation_id, draft.key), draft)
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
        if draft.key is None and draft.attempted:
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
            again += (leader, *family)
        else:
            for draft in (leader, *family):
                draft.fail(REFUSALS[row["outcome"]]())
    return again


def _replay(drafts: Iterable[Draft], stored_hash: bytes | None, response: str) -> None:
    for draft in drafts:
        if draft.request_hash == stored_hash:
            draft.succeed(Written(response, replayed=True))
        else:
            draft.fail(errors.IdempotencyKeyConflict())
