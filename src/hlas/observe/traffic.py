"""Traffic by tenant and minute: counted in memory, written to the database every few seconds."""

import secrets
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, Self, TypeAlias
from uuid import UUID

from hlas import log
from hlas.observe.incidents import Watch
from hlas.store.db import Database, Queries, Row, columns

queries = Queries.beside(__file__)

Span = Literal["minute", "hour"]

FLUSH_SECONDS = 10.0
FORGET_SECONDS = 600.0
KEPT_DAYS = 8
# All refused requests are counted; only the latest ones are stored one by one.
SAMPLES = 100
# During a long outage of the database, older counts are dropped to bound the memory.
MOST_COUNTS = 100_000

# The tenant id of requests that came before their tenant was known.
NOBODY = str(UUID(int=0))

# A refused request in the order of the columns of `add_blocked`.
BlockedRow: TypeAlias = tuple[datetime, str, UUID, str, str, str, str | None, str]


class Blocked(NamedTuple):
    """A refused request that is not stored yet; `at` is in nanoseconds."""

    at: int
    tenant_id: str
    reason: str
    scope: str
    route: str
    conversation_id: str | None
    request_id: str

    def row(self) -> BlockedRow:
        created_at = datetime.fromtimestamp(self.at / 1e9, UTC)
        return (created_at, self.tenant_id, _identifier(self.at), *self[2:])


def _identifier(at: int) -> UUID:
    """A UUIDv7 of this nanosecond: ids are in order of time within a millisecond, too."""
    milliseconds, rest = divmod(at, 1_000_000)
    fraction = (rest << 12) // 1_000_000
    return UUID(int=milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | secrets.randbits(62))


@dataclass(frozen=True, slots=True)
class BlockedRequest:
    """A refused request as it is listed."""

    id: UUID
    created_at: datetime
    tenant_id: UUID
    slug: str | None
    reason: str
    scope: str
    route: str
    conversation_id: UUID | None
    request_id: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            created_at=row["created_at"],
            tenant_id=row["tenant_id"],
            slug=row["slug"],
            reason=row["reason"],
            scope=row["scope"],
            route=row["route"],
            conversation_id=row["conversation_id"],
            request_id=row["request_id"],
        )


@dataclass(frozen=True, slots=True)
class Count:
    """How often something happened from `start` on, for a minute or an hour."""

    start: datetime
    kind: str
    detail: str
    count: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["start"], row["kind"], row["detail"], row["count"])


@dataclass(frozen=True, slots=True)
class TenantCount:
    """How often something happened at a tenant."""

    slug: str
    name: str
    kind: str
    detail: str
    count: int

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["slug"], row["name"], row["kind"], row["detail"], row["count"])


class Traffic:
    """One for each worker; counting a request costs one addition in a dictionary."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
        self._counts: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._blocked: deque[Blocked] = deque(maxlen=SAMPLES)
        # Counts not written yet because the database was away, with the time they were taken.
        self._owed: list[tuple[datetime, str, str, str, int]] = []
        self._owed_blocked: list[BlockedRow] = []

    def count(self, kind: str, detail: str = "", tenant_id: str | None = None) -> None:
        """Count for the request's tenant; `tenant_id` is used where the request has none."""
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

    async def flush(self, operators: Database) -> None:
        """Write all counts to the database; those that cannot be written now are kept."""
        now = datetime.now(UTC)
        counts, self._counts = self._counts, defaultdict(int)
        self._owed += [(now, *key, count) for key, count in counts.items()]
        del self._owed[:-MOST_COUNTS]
        owed, self._owed = self._owed, []
        # Rows get their ids once, so that a retry after a lost response writes the same rows.
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
    """Delete counts and requests that are too old for every plot and list."""
    oldest = datetime.now(UTC) - timedelta(days=KEPT_DAYS)
    await operators.execute(queries.forget_minutes)
    await operators.execute(queries.forget_hours)
    await operators.execute(queries.forget_blocked, UUID(int=int(oldest.timestamp() * 1000) << 80))


async def count_by_start(
    database: Database, span: Span, since: datetime, tenant_id: UUID | None
) -> list[Count]:
    """Counts by start, kind and detail; of one tenant or of all together."""
    rows = await database.all(queries.counts_by_start, span, since, tenant_id)
    return [Count.from_row(row) for row in rows]


async def count_by_tenant(database: Database, span: Span, since: datetime) -> list[TenantCount]:
    rows = await database.all(queries.counts_by_tenant, span, since)
    return [TenantCount.from_row(row) for row in rows]


async def list_blocked(
    database: Database,
    *,
    tenant_id: UUID | None = None,
    reason: str | None = None,
    request_id: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[BlockedRequest], UUID | None]:
    """A page of refused requests, newest first, and the cursor of the next page."""
    rows = await database.all(
        queries.list_blocked, tenant_id, reason, request_id, before, limit + 1
    )
    page = [BlockedRequest.from_row(row) for row in rows[:limit]]
    return page, page[-1].id if len(rows) > limit else None
