"""Incidents: one is raised when a tenant has too many signs of abuse within an hour."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self
from uuid import UUID

import uuid_utils

from hlas import log
from hlas.settings import Settings
from hlas.store.db import Database, Queries, Row, columns

queries = Queries.beside(__file__)

# Traffic that is a sign of abuse, and its kind. Details are our own codes, never a visitor's data.
# Expired and revoked tokens are not signs: every session ends with one.
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


@dataclass(frozen=True, slots=True)
class Incident:
    id: UUID
    slug: str
    kind: str
    count: int
    details: dict[str, object]
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            slug=row["slug"],
            kind=row["kind"],
            count=row["count"],
            details=row["details"],
            created_at=row["created_at"],
        )


class Watch:
    """Checks the hours in which signs were just counted; one for each worker."""

    def __init__(self, settings: Settings, on_raise: Callable[[str], None]) -> None:
        thresholds = {
            "origin_mismatches": settings.incident_origin_mismatches,
            "conversation_mismatches": settings.incident_conversation_mismatches,
            "token_failures": settings.incident_token_failures,
            "identity_failures": settings.incident_identity_failures,
            "limit_hits": settings.incident_limit_hits,
        }
        self._thresholds = {kind: number for kind, number in thresholds.items() if number}
        self._on_raise = on_raise
        # Tenants and moments not checked yet.
        self._suspects: set[tuple[UUID, datetime]] = set()

    def note(self, counts: Iterable[tuple[datetime, str, str, str, int]]) -> None:
        """Remember where there are new signs; those without a known tenant are only logged."""
        self._suspects.update(
            (UUID(tenant_id), _quarter(moment))
            for moment, tenant_id, kind, detail, _ in counts
            if SIGNS.get((kind, detail)) in self._thresholds and UUID(tenant_id).int
        )

    async def look(self, operators: Database) -> None:
        """Raise an incident over each exceeded threshold, once however many workers check."""
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
    """Rounded down to 15 minutes: hours start on one in every time zone of a database."""
    return moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)


async def list_incidents(
    database: Database,
    *,
    tenant_id: UUID | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> tuple[list[Incident], UUID | None]:
    """A page of incidents, newest first, and the cursor of the next page."""
    rows = await database.all(queries.list_incidents, tenant_id, before, limit + 1)
    page = [Incident.from_row(row) for row in rows[:limit]]
    return page, page[-1].id if len(rows) > limit else None
