"""Visitors' conversations: searched, read while they go on, closed."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import Request, Response

from hlas.api.admin.access import answer
from hlas.api.admin.conversations import HIGHEST_SEQ
from hlas.api.console.access import CONSOLE, Signed, Tenant, go, identifier, router
from hlas.api.console.overview import MOST_TENANTS
from hlas.conversations import conversations
from hlas.conversations.conversations import Search, Status
from hlas.tenants import tenants

PAGE = 25
MESSAGES = 100


@router.get("/conversations")
async def choose_tenant(visit: Signed, tenant: str = "") -> Response:
    """Conversations belong to a tenant: straight there when it is given or the only one."""
    known = await tenants.listed(visit.database, limit=MOST_TENANTS)
    chosen = [one for one in known if one["slug"] == tenant] or known
    if len(chosen) == 1:
        return go(f"{CONSOLE}/tenants/{chosen[0]['slug']}/conversations")
    return visit.page("choose.html", tenants=known)


@router.get("/tenants/{slug}/conversations")
async def find_conversations(visit: Signed, tenant: Tenant, request: Request) -> Response:
    asked = {
        name: request.query_params.get(name, "").strip()[:200]
        for name in ("text", "visitor_id", "status", "since", "until", "empty")
    }
    tenant_id = UUID(tenant["id"])
    found, following = await conversations.find(
        visit.database,
        tenant_id,
        _search(asked),
        before=identifier(request.query_params.get("before")),
        limit=PAGE,
    )
    return visit.page(
        "conversations.html",
        tenant=tenant,
        asked={name: value for name, value in asked.items() if value},
        conversations=found,
        words=await conversations.last_words(visit.database, tenant_id, found),
        following=following,
    )


def _search(asked: dict[str, str]) -> Search:
    """What does not make sense is not searched for."""
    status: Status | None = None
    if asked["status"] in {"open", "closed"}:
        status = "open" if asked["status"] == "open" else "closed"
    text = asked["text"].replace("\0", "")
    return Search(
        status=status,
        visitor_id=asked["visitor_id"].replace("\0", "") or None,
        since=_day(asked["since"]),
        until=_day(asked["until"], following=True),
        text=text if len(text) > 1 else None,
        empty=bool(asked["empty"]),
    )


def _day(text: str, *, following: bool = False) -> datetime | None:
    """When a day begins, or the one that follows it."""
    try:
        begins = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return begins + timedelta(days=1) if following else begins
    except (ValueError, OverflowError):
        return None


@router.get("/tenants/{slug}/conversations/{conversation_id}")
async def read_conversation(
    visit: Signed, tenant: Tenant, conversation_id: UUID, after: int = 0
) -> Response:
    tenant_id = UUID(tenant["id"])
    conversation = await conversations.by_id(visit.database, tenant_id, conversation_id)
    shown, following = await _messages(visit.database, tenant_id, conversation_id, after)
    return visit.page(
        "conversation.html",
        tenant=tenant,
        conversation=conversation,
        messages=shown,
        following=following,
    )


async def _messages(
    database: Any, tenant_id: UUID, conversation_id: UUID, after: int
) -> tuple[list[dict[str, Any]], int | None]:
    start = min(max(after, 0), HIGHEST_SEQ)
    return await conversations.transcript(
        database, tenant_id, conversation_id, after=start, limit=MESSAGES
    )


@router.get("/tenants/{slug}/conversations/{conversation_id}/messages")
async def follow_conversation(
    visit: Signed, tenant: Tenant, conversation_id: UUID, after: int = 0
) -> Response:
    """For the page's script: what is new since the last message it has."""
    shown, following = await _messages(visit.database, UUID(tenant["id"]), conversation_id, after)
    return answer({"messages": shown, "next_cursor": following})


@router.post("/tenants/{slug}/conversations/{conversation_id}/close")
async def close_conversation(visit: Signed, tenant: Tenant, conversation_id: UUID) -> Response:
    await conversations.close(visit.database, UUID(tenant["id"]), conversation_id, visit.change)
    return go(f"{CONSOLE}/tenants/{tenant['slug']}/conversations/{conversation_id}", "closed")
