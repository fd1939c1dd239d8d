"""Signs of abuse at a tenant, counted by the hour: one incident when there are too many."""

from collections.abc import Callable, Iterable
from datetime import datetime
from uuid import UUID

import uuid_utils

from hlas import log
from hlas.observe.metrics import INCIDENTS
from hlas.settings import Settings
from hlas.store.db import Database, Queries, Row, columns

queries = Queries.beside(__file__)

# What of the traffic is a sign, and of what. All of them are codes of ours, none is a visitor's.
# Expired and revoked tokens are not: those are the life of every session.
SIGNS = {
    ("auth", "origin_mismatch"): "origin_mismatches",
    ("auth", "conversation_mismatch"): "conversation_mismatches",
    ("auth", "invalid_authorization"): "token_failures",
    ("auth", "invalid_token"): "token_failures",
    ("auth", "invalid_claims"): "token_failures",
    ("session", "invalid_identity"): "identity_failures",
    ("blocked", "rate_limited/ip"): "limit_hits",
    ("blocked", "rate_limited/tenant"): "limit_hits",
    ("blocked", "rate_limited/conversation"): "limit_hits",
}


class Watch:
    """Looks at the hours in which something was just counted; one for each worker."""

    def __init__(self, settings: Settings, on_raise: Callable[[str], None]) -> None:
        thresholds = {kind: getattr(settings, f"incident_{kind}") for kind in INCIDENTS}
        self._thresholds = {kind: number for kind, number in thresholds.items() if number}
        self._on_raise = on_raise
        # Tenants and moments not looked at yet.
        self._suspects: set[tuple[UUID, datetime]] = set()

    def note(self, counts: Iterable[tuple[datetime, str, str, str, int]]) -> None:
        """Remember where there are new signs; what no tenant was known for is in the log alone."""
        self._suspects.update(
            (UUID(tenant_id), _quarter(moment))
            for moment, tenant_id, kind, detail, _ in counts
            if SIGNS.get((kind, detail)) in self._thresholds and UUID(tenant_id).int
        )

    async def look(self, operators: Database) -> None:
        """Raise what is over its threshold, once however many workers look."""
        suspects = self._suspects
        if not suspects:
            return
        asked = [
            (tenant_id, moment, kind, threshold, UUID(str(uuid_utils.uuid7())))
            for tenant_id, moment in suspects
            for kind, threshold in self._thresholds.items()
        ]
        signs = [(kind, counted, detail) for (counted, detail), kind in SIGNS.items()]
        rows = await operators.all(queries.raise_incidents, *columns(asked), *columns(signs))
        self._suspects = set()
        for row in rows:
            if row["is_new"]:
                log.warning(
                    "incident", kind=row["kind"], count=row["count"], tenant_id=row["tenant_id"]
                )
                self._on_raise(row["kind"])


def _quarter(moment: datetime) -> datetime:
    """One for many: in every time zone a database may have, hours begin at a quarter of ours."""
    return moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)


async def listed(
    database: Database,
    *,
    tenant_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[Row], UUID | None]:
    """What went wrong at tenants, newest first, and where the next page starts."""
    rows = await database.all(queries.list_incidents, tenant_id, before, limit + 1)
    return rows[:limit], rows[limit - 1]["id"] if len(rows) > limit else None
