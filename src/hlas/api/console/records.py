"""What was blocked, what went wrong, who changed what."""

import re
from typing import Any
from uuid import UUID

from fastapi import Response

from hlas import errors
from hlas.api.console.access import Signed, Visit, chosen_tenant, identifier, router
from hlas.api.console.overview import MOST_TENANTS
from hlas.observe import incidents, traffic
from hlas.tenants import audit, tenants
from hlas.tenants.tenants import SLUG

PAGE = 50
REASONS = ("rate_limited", "payload_too_large", "text_too_long", "rate_limited_dry_run")
NOUNS = ("tenant", "domain", "knowledge", "conversation", "visitor_key", "admin_key", "privacy")
# The kinds in words; what is not here is shown as it is.
TITLES = {
    "origin_mismatches": "Tokens used on another website",
    "conversation_mismatches": "Others' conversations asked for",
    "token_failures": "Forged or broken tokens",
    "identity_failures": "Visitors' identities refused",
    "limit_hits": "Requests over a limit",
}
_ACTION = re.compile(r"[a-z_]{1,40}(\.[a-z_]{1,40})?")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


async def _tenant_list(visit: Visit) -> list[dict[str, Any]]:
    return await tenants.listed(visit.database, limit=MOST_TENANTS)


async def _tenant_id(visit: Visit, slug: str) -> UUID | None:
    chosen = await chosen_tenant(visit, slug)
    return UUID(chosen["id"]) if chosen else None


@router.get("/blocked")
async def blocked_page(
    visit: Signed, tenant: str = "", reason: str = "", request_id: str = "", before: str = ""
) -> Response:
    """The latest of them; all are counted in the overview, and logged."""
    known = await _tenant_list(visit)
    wanted = request_id.strip()
    rows, following = await traffic.blocked_requests(
        visit.database,
        tenant_id=await _tenant_id(visit, tenant),
        reason=reason if reason in REASONS else None,
        request_id=wanted if _REQUEST_ID.fullmatch(wanted) else None,
        before=identifier(before),
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
async def incidents_page(visit: Signed, tenant: str = "", before: str = "") -> Response:
    known = await _tenant_list(visit)
    rows, following = await incidents.listed(
        visit.database,
        tenant_id=await _tenant_id(visit, tenant),
        before=identifier(before),
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
async def audit_page(
    visit: Signed, tenant: str = "", action: str = "", before: str = ""
) -> Response:
    known = await _tenant_list(visit)
    # Also one that is gone: its audit outlives it.
    if tenant and not re.fullmatch(SLUG, tenant):
        raise errors.NotFound
    found, following = await audit.listed(
        visit.database,
        slug=tenant or None,
        action=action if _ACTION.fullmatch(action) else None,
        before=identifier(before),
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
