"""Plots of the last hour, day or week, of one tenant or of all."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastapi import Response

from hlas.api.console.access import Signed, Visit, find_chosen_tenant, router
from hlas.api.console.plots import (
    RANGES,
    Counts,
    Plot,
    Range,
    draw_columns,
    draw_lines,
    estimate_quantile,
)
from hlas.observe import traffic
from hlas.observe.metrics import BUCKETS
from hlas.observe.traffic import TenantCount
from hlas.tenants import tenants

# A longer list to choose a tenant from is of no use.
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
    known = await tenants.list_tenants(visit.database, limit=MOST_TENANTS)
    chosen = await find_chosen_tenant(visit, tenant)
    if chosen is None and not visit.administrator.is_operator:
        chosen = known[0]
    now = datetime.now(UTC)
    tenant_id = chosen.id if chosen else None
    since = spread.starts(now)[0]
    counted = await traffic.count_by_start(visit.database, spread.span, since, tenant_id)
    counts = Counts(counted, spread, now)
    return visit.page(
        "overview.html",
        plots=draw_plots(counts),
        tenants=known,
        chosen=chosen,
        range=spread,
        ranges=RANGES.values(),
        busiest=[] if chosen else await find_busiest(visit, spread, since),
    )


def draw_plots(counts: Counts) -> list[Plot]:
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
        draw_columns("Messages", starts, roles),
        draw_columns("Sessions", starts, sessions, apart="Denied"),
        draw_columns("Blocked", starts, list_blocked_series(counts)),
        draw_columns("Replays and conflicts", starts, keyed),
        draw_latency(counts),
    ]


def list_blocked_series(counts: Counts) -> list[tuple[str, str, list[float | None]]]:
    """One series for each reason that occurs, and one for dry runs."""
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


def draw_latency(counts: Counts) -> Plot:
    whole = [
        int(sum(value or 0 for value in counts.of("latency", name.__eq__))) for name in BUCKETS
    ]
    slowest = estimate_quantile(whole, 0.99)
    headline = "0" if slowest is None else f"p99 {slowest:.3g} ms"
    given = [("p50", "one", counts.quantile(0.5)), ("p99", "four", counts.quantile(0.99))]
    return draw_lines("Time to store a message", headline, " ms", counts.starts, given)


@dataclass(slots=True)
class Busy:
    """Sums of a tenant's traffic."""

    slug: str
    name: str
    messages: int = 0
    sessions: int = 0
    blocked: int = 0
    latency: dict[str, int] = field(default_factory=dict)

    @property
    def p99(self) -> float | None:
        return estimate_quantile([self.latency.get(name, 0) for name in BUCKETS], 0.99)

    def add(self, counted: TenantCount) -> None:
        match counted.kind, counted.detail:
            case "message", _:
                self.messages += counted.count
            case "session", "created":
                self.sessions += counted.count
            case "blocked", _:
                self.blocked += counted.count
            case "latency", bucket:
                self.latency[bucket] = self.latency.get(bucket, 0) + counted.count


async def find_busiest(visit: Visit, spread: Range, since: datetime) -> list[Busy]:
    """Tenants with any traffic, those with the most messages first."""
    found: dict[str, Busy] = {}
    for counted in await traffic.count_by_tenant(visit.database, spread.span, since):
        found.setdefault(counted.slug, Busy(counted.slug, counted.name)).add(counted)
    return sorted(found.values(), key=lambda busy: (-busy.messages, busy.slug))[:50]
