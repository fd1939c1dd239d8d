"""Visitors' conversations: search, read, follow and close."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from fastapi import Request, Response

from hlas.api.admin.access import answer
from hlas.api.admin.conversations import HIGHEST_SEQ
from hlas.api.console.access import CONSOLE, PathTenant, Signed, go, parse_id, router
from hlas.api.console.overview import MOST_TENANTS
from hlas.conversations import conversations
from hlas.conversations.conversations import Message, Search, Status
from hlas.store.db import Database
from hlas.tenants import tenants

PAGE = 25
MESSAGES = 100


@router.get("/conversations")
async def choose_tenant(visit: Signed, tenant: str = "") -> Response:
    """Redirect to the conversations of the given or only tenant, or let the user choose one."""
    known = await tenants.list_tenants(visit.database, limit=MOST_TENANTS)
    chosen = [one for one in known if one.slug == tenant] or known
    if len(chosen) == 1:
        return go(f"{CONSOLE}/tenants/{chosen[0].slug}/conversations")
    return visit.page("choose.html", tenants=known)


@router.get("/tenants/{slug}/conversations")
async def find_conversations(visit: Signed, tenant: PathTenant, request: Request) -> Response:
    asked = {
        name: request.query_params.get(name, "").strip()[:200]
        for name in ("text", "visitor_id", "status", "since", "until", "empty")
    }
    found, following = await conversations.find(
        visit.database,
        tenant.id,
        _make_search(asked),
        before=parse_id(request.query_params.get("before")),
        limit=PAGE,
    )
    return visit.page(
        "conversations.html",
        tenant=tenant,
        asked={name: value for name, value in asked.items() if value},
        conversations=found,
        words=await conversations.find_last_words(visit.database, tenant.id, found),
        following=following,
    )


def _make_search(asked: dict[str, str]) -> Search:
    """Values that are not valid are ignored."""
    status: Status | None = None
    if asked["status"] in {"open", "closed"}:
        status = "open" if asked["status"] == "open" else "closed"
    text = asked["text"].replace("\0", "")
    return Search(
        status=status,
        visitor_id=asked["visitor_id"].replace("\0", "") or None,
        since=_parse_day(asked["since"]),
        until=_parse_day(asked["until"], following=True),
        text=text if len(text) > 1 else None,
        empty=bool(asked["empty"]),
    )


def _parse_day(text: str, *, following: bool = False) -> datetime | None:
    """The start of a day, or of the following one."""
    try:
        begins = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return begins + timedelta(days=1) if following else begins
    except (ValueError, OverflowError):
        return None


@router.get("/tenants/{slug}/conversations/{conversation_id}")
async def read_conversation(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, after: int = 0
) -> Response:
    conversation = await conversations.find_conversation(visit.database, tenant.id, conversation_id)
    shown, following = await _read_messages(visit.database, tenant.id, conversation_id, after)
    return visit.page(
        "conversation.html",
        tenant=tenant,
        conversation=conversation,
        messages=shown,
        following=following,
    )


async def _read_messages(
    database: Database, tenant_id: UUID, conversation_id: UUID, after: int
) -> tuple[list[Message], int | None]:
    start = min(max(after, 0), HIGHEST_SEQ)
    return await conversations.read_messages(
        database, tenant_id, conversation_id, after=start, limit=MESSAGES
    )


@router.get("/tenants/{slug}/conversations/{conversation_id}/messages")
async def follow_conversation(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, after: int = 0
) -> Response:
    """For the page's script: messages after the last one it has."""
    shown, following = await _read_messages(visit.database, tenant.id, conversation_id, after)
    return answer({"messages": shown, "next_cursor": following})


@router.post("/tenants/{slug}/conversations/{conversation_id}/close")
async def close_conversation(visit: Signed, tenant: PathTenant, conversation_id: UUID) -> Response:
    await conversations.close(visit.database, tenant.id, conversation_id, visit.change)
    return go(f"{CONSOLE}/tenants/{tenant.slug}/conversations/{conversation_id}", "closed")
