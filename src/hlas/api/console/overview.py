"""What is going on: plots of the last hour, day or week, of one tenant or of all."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import Response

from hlas.api.console.access import Signed, Visit, chosen_tenant, router
from hlas.api.console.plots import RANGES, Counts, Plot, Range, columns, lines, percentile
from hlas.observe import traffic
from hlas.observe.metrics import BUCKETS
from hlas.store.db import Row
from hlas.tenants import tenants

# A list to choose a tenant from is no use beyond this.
MOST_TENANTS = 500

_REASONS = (
    ("rate_limited/ip", "Address", "one"),
    ("rate_limited/conversation", "Conversation", "two"),
    ("rate_limited/tenant", "Tenant", "three"),
    ("rate_limited/key", "Admin key", "four"),
    ("payload_too_large/request", "Large body", "five"),
    ("text_too_long/request", "Long text", "six"),
)
_ROLES = (("user", "Visitors", "one"), ("assistant", "Assistant", "two"))


@router.get("")
async def overview(visit: Signed, tenant: str = "", range: str = "hour") -> Response:  # noqa: A002  # the name in the address
    spread = RANGES.get(range, RANGES["hour"])
    known = await tenants.listed(visit.database, limit=MOST_TENANTS)
    chosen = await chosen_tenant(visit, tenant)
    if chosen is None and not visit.administrator.is_operator:
        chosen = known[0]
    now = datetime.now(UTC)
    tenant_id = UUID(chosen["id"]) if chosen else None
    since = spread.starts(now)[0]
    counts = Counts(
        await traffic.by_start(visit.database, spread.span, since, tenant_id), spread, now
    )
    return visit.page(
        "overview.html",
        plots=plots(counts),
        tenants=known,
        chosen=chosen,
        range=spread,
        ranges=RANGES.values(),
        busiest=[] if chosen else await busiest(visit, spread, since),
    )


def plots(counts: Counts) -> list[Plot]:
    starts = counts.starts
    roles = [(name, tone, counts.of("message", role.__eq__)) for role, name, tone in _ROLES]
    denied = counts.of("session", lambda outcome: outcome != "created")
    sessions = [
        ("Opened", "one", counts.of("session", "created".__eq__)),
        ("Denied", "three", denied),
    ]
    keyed = [
        ("Replays", "two", counts.of("idempotency", "hit".__eq__)),
        ("Conflicts", "three", counts.of("idempotency", "conflict".__eq__)),
    ]
    return [
        columns("Messages", starts, roles),
        columns("Sessions", starts, sessions, apart="Denied"),
        columns("Blocked", starts, blocked(counts)),
        columns("Replays and conflicts", starts, keyed),
        latency(counts),
    ]


def blocked(counts: Counts) -> list[tuple[str, str, list[float | None]]]:
    """One series for each reason that occurs; what is only a dry run says so."""
    found = counts.details("blocked")
    given = [
        (name, tone, counts.of("blocked", detail.__eq__))
        for detail, name, tone in _REASONS
        if detail in found
    ]
    known = {detail for detail, _, _ in _REASONS}
    rest = [detail for detail in found if detail not in known]
    if rest:
        given.append(("Dry run", "six", counts.of("blocked", rest.__contains__)))
    return given or [("Blocked", "one", counts.of("blocked"))]


def latency(counts: Counts) -> Plot:
    whole = [
        int(sum(value or 0 for value in counts.of("latency", name.__eq__))) for name in BUCKETS
    ]
    slowest = percentile(whole, 0.99)
    headline = "0" if slowest is None else f"p99 {slowest:.3g} ms"
    given = [("p50", "one", counts.percentile(0.5)), ("p99", "four", counts.percentile(0.99))]
    return lines("Time to store a message", headline, " ms", counts.starts, given)


async def busiest(visit: Visit, spread: Range, since: datetime) -> list[dict[str, Any]]:
    """Tenants with any traffic, those with the most messages first."""
    found: dict[str, dict[str, Any]] = {}
    for row in await traffic.by_tenant(visit.database, spread.span, since):
        _add(found.setdefault(row["slug"], _nothing(row)), row)
    for one in found.values():
        one["p99"] = percentile([one["latency"].get(name, 0) for name in BUCKETS], 0.99)
    return sorted(found.values(), key=lambda one: (-one["messages"], one["slug"]))[:50]


def _nothing(row: Row) -> dict[str, Any]:
    empty = {"messages": 0, "sessions": 0, "blocked": 0, "latency": {}}
    return {"slug": row["slug"], "name": row["name"], **empty}


def _add(sums: dict[str, Any], row: Row) -> None:
    match row["kind"], row["detail"]:
        case "message", _:
            sums["messages"] += row["count"]
        case "session", "created":
            sums["sessions"] += row["count"]
        case "blocked", _:
            sums["blocked"] += row["count"]
        case "latency", bucket:
            sums["latency"][bucket] = sums["latency"].get(bucket, 0) + row["count"]
