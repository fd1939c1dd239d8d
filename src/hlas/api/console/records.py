"""Refused requests, incidents and the audit."""

import re
from uuid import UUID

from fastapi import Response

from hlas import errors
from hlas.api.console.access import Signed, Visit, find_chosen_tenant, parse_id, router
from hlas.api.console.overview import MOST_TENANTS
from hlas.observe import incidents, traffic
from hlas.tenants import audit, tenants
from hlas.tenants.tenants import SLUG, Tenant

PAGE = 50
REASONS = ("rate_limited", "payload_too_large", "text_too_long", "rate_limited_dry_run")
NOUNS = (
    *("tenant", "domain", "knowledge", "agent", "model", "caps", "conversation", "visitor_key"),
    *("admin_key", "privacy"),
)
# Titles of the kinds; a kind without one is shown by its name.
TITLES = {
    "origin_mismatches": "Tokens used on another website",
    "conversation_mismatches": "Others' conversations asked for",
    "token_failures": "Forged or broken tokens",
    "identity_failures": "Visitors' identities refused",
    "limit_hits": "Requests over a limit",
    "budget_80": "A cap for models is used to 80 %",
    "budget_100": "A cap for models is used up",
}
_ACTION = re.compile(r"[a-z_]{1,40}(\.[a-z_]{1,40})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


async def _list_tenants(visit: Visit) -> list[Tenant]:
    return await tenants.list_tenants(visit.database, limit=MOST_TENANTS)


async def _find_tenant_id(visit: Visit, slug: str) -> UUID | None:
    chosen = await find_chosen_tenant(visit, slug)
    return chosen.id if chosen else None


@router.get("/blocked")
async def list_blocked(
    visit: Signed, tenant: str = "", reason: str = "", request_id: str = "", before: str = ""
) -> Response:
    """The latest refused requests; the overview and the log have all of them."""
    known = await _list_tenants(visit)
    wanted = request_id.strip()
    rows, following = await traffic.list_blocked(
        visit.database,
        tenant_id=await _find_tenant_id(visit, tenant),
        reason=reason if reason in REASONS else None,
        request_id=wanted if _REQUEST_ID.fullmatch(wanted) else None,
        before=parse_id(before),
        limit=PAGE,
    )
    return visit.page(
        "blocked.html",
        rows=rows,
        following=following,
        tenants=known,
        reasons=REASONS,
        asked={"tenant": tenant, "reason": reason, "request_id": wanted},
    )


@router.get("/incidents")
async def list_incidents(visit: Signed, tenant: str = "", before: str = "") -> Response:
    known = await _list_tenants(visit)
    rows, following = await incidents.list_incidents(
        visit.database,
        tenant_id=await _find_tenant_id(visit, tenant),
        before=parse_id(before),
        limit=PAGE,
    )
    return visit.page(
        "incidents.html",
        rows=rows,
        following=following,
        tenants=known,
        titles=TITLES,
        asked={"tenant": tenant},
    )


@router.get("/audit")
async def read_audit(
    visit: Signed, tenant: str = "", action: str = "", before: str = ""
) -> Response:
    known = await _list_tenants(visit)
    # A removed tenant is accepted, too: its events remain.
    if tenant and not re.fullmatch(SLUG, tenant):
        raise errors.NotFound
    found, following = await audit.list_events(
        visit.database,
        slug=tenant or None,
        action=action if _ACTION.fullmatch(action) else None,
        before=parse_id(before),
        limit=PAGE,
    )
    return visit.page(
        "audit.html",
        events=found,
        following=following,
        tenants=known,
        nouns=NOUNS,
        asked={"tenant": tenant, "action": action},
    )
