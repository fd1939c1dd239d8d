"""What went on, by tenant and minute: counted in memory, written to the database now and then."""

import asyncio
import secrets
import time
from collections import defaultdict, deque
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import asyncpg

from hlas import log
from hlas.errors import Unavailable
from hlas.observe.incidents import Watch
from hlas.store.db import Database, Queries, Row, columns

queries = Queries.beside(__file__)

Span = Literal["minute", "hour"]

FLUSH_SECONDS = 10.0
FORGET_SECONDS = 600.0
KEPT_DAYS = 8
# A flood is counted in full, but only the latest of it are kept one by one.
SAMPLES = 100
# Of a long outage of the database the rest is dropped, rather than grow for ever.
MOST_COUNTS = 100_000

# What came before its tenant was known.
NOBODY = str(UUID(int=0))


class Blocked(NamedTuple):
    """A refused request, as its log line tells of it; `at` is in nanoseconds."""

    at: int
    tenant_id: str
    reason: str
    scope: str
    route: str
    conversation_id: str | None
    request_id: str

    def row(self) -> tuple[Any, ...]:
        created_at = datetime.fromtimestamp(self.at / 1e9, UTC)
        return (created_at, self.tenant_id, _identifier(self.at), *self[2:])


def _identifier(at: int) -> UUID:
    """A UUIDv7 of this nanosecond: in order of time within a millisecond, too."""
    milliseconds, rest = divmod(at, 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


class Traffic:
    """One for each worker; on the way of a request it costs an addition in a dictionary."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._blocked: deque[Blocked] = deque(maxlen=SAMPLES)
        # What a database that was away has not got yet, by the moment it was taken.
        self._owed: list[tuple[datetime, str, str, str, int]] = []
        self._owed_blocked: list[tuple[Any, ...]] = []

    def count(self, kind: str, detail: str = "", tenant_id: str | None = None) -> None:
        """For the request's tenant; `tenant_id` stands in where none is known."""
        self._counts[log.known("tenant_id") or tenant_id or NOBODY, kind, detail] += 1

    def block(self, reason: str, scope: str, route: str) -> None:
        self.count("blocked", f"{reason}/{scope}")
        known = log.current().get
        self._blocked.append(
            Blocked(
                time.time_ns(),
                known("tenant_id") or NOBODY,
                reason,
                scope,
                route,
                known("conversation_id"),
                known("request_id", ""),
            )
        )

    async def keep(self, operators: Database) -> None:
        """Write what was counted, every few seconds, and forget what is old."""
        forget_at = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            try:
                await self.flush(operators)
                if clock() >= forget_at:
                    await forget(operators)
                    forget_at = clock() + FORGET_SECONDS
            except (Unavailable, asyncpg.PostgresError) as error:
                log.warning("traffic_paused", error=type(error).__name__)

    async def flush(self, operators: Database) -> None:
        """Everything counted so far into the database; what cannot be written now is kept."""
        now = datetime.now(UTC)
        counts, self._counts = self._counts, defaultdict(int)
        self._owed += [(now, *key, count) for key, count in counts.items()]
        del self._owed[:-MOST_COUNTS]
        owed, self._owed = self._owed, []
        # Rows are made once: written again after an answer that was lost, they are the same ones.
        blocked = (self._owed_blocked + [one.row() for one in self._blocked])[-SAMPLES:]
        self._owed_blocked = []
        self._blocked.clear()
        try:
            if owed:
                await operators.execute(queries.add_counts, *columns(owed))
                if self._watch is not None:
                    self._watch.note(owed)
                owed = []
            if blocked:
                await operators.execute(queries.add_blocked, *columns(blocked))
                blocked = []
            if self._watch is not None:
                await self._watch.look(operators)
        finally:
            self._owed = owed + self._owed
            self._owed_blocked = blocked + self._owed_blocked


async def forget(operators: Database) -> None:
    """Delete what no plot and no list shows any more."""
    oldest = datetime.now(UTC) - timedelta(days=KEPT_DAYS)
    await operators.execute(queries.forget_minutes)
    await operators.execute(queries.forget_hours)
    await operators.execute(queries.forget_blocked, UUID(int=int(oldest.timestamp() * 1000) << 80))


async def by_start(
    database: Database, span: Span, since: datetime, tenant_id: UUID | None
) -> list[Row]:
    """Rows of start, kind, detail and count; of one tenant or of all."""
    return await database.all(queries.counts_by_start, span, since, tenant_id)


async def by_tenant(database: Database, span: Span, since: datetime) -> list[Row]:
    return await database.all(queries.counts_by_tenant, span, since)


async def blocked_requests(
    database: Database,
    *,
    tenant_id: UUID | None = None,
    reason: str | None = None,
    request_id: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[Row], UUID | None]:
    """The latest refused requests, newest first, and where the next page starts."""
    rows = await database.all(
        queries.list_blocked, tenant_id, reason, request_id, before, limit + 1
    )
    return rows[:limit], rows[limit - 1]["id"] if len(rows) > limit else None
