"""Visitors' conversations: search, read, follow, answer, take over, hand back and close."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import uuid_utils
from fastapi import Request, Response

from hlas import errors
from hlas.api.admin.access import answer
from hlas.api.admin.conversations import (
    HIGHEST_SEQ,
    announce_handler,
    open_list_stream,
    open_stream,
    store_message,
)
from hlas.api.console.access import (
    CONSOLE,
    PathTenant,
    Sent,
    Signed,
    go,
    is_from_script,
    parse_id,
    router,
)
from hlas.api.console.overview import MOST_TENANTS
from hlas.conversations import conversations, messages
from hlas.conversations.conversations import Search, Status
from hlas.services import Services
from hlas.tenants import tenants
from hlas.tenants.tenants import Handler, Tenant

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


# Must be before the routes of a conversation: its address looks like theirs.
@router.get("/tenants/{slug}/conversations/stream")
async def follow_list(visit: Signed, tenant: PathTenant) -> Response:
    """Server-sent events: `change` when the list should be read again."""
    return (
        open_list_stream(visit, visit.request, str(tenant.id)) if tenant.is_active else _no_stream()
    )


@router.get("/tenants/{slug}/conversations/{conversation_id}")
async def read_conversation(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, after: int | None = None
) -> Response:
    """The last messages, which the script follows; `after` shows others."""
    conversation = await conversations.find_conversation(visit.database, tenant.id, conversation_id)
    start = conversation.messages - MESSAGES if after is None else after
    shown, following = await conversations.read_messages(
        visit.database,
        tenant.id,
        conversation_id,
        after=min(max(start, 0), HIGHEST_SEQ),
        limit=MESSAGES,
    )
    first = shown[0].seq if shown else 1
    services: Services = visit.request.app.state.services
    return visit.page(
        "conversation.html",
        tenant=tenant,
        conversation=conversation,
        messages=shown,
        earlier=max(first - 1 - MESSAGES, 0) if first > 1 else None,
        # The stream brings messages that came meanwhile.
        later=following if after is not None else None,
        key=uuid_utils.uuid4(),
        longest=services.settings.max_message_text_len,
    )


@router.get("/tenants/{slug}/conversations/{conversation_id}/stream")
async def follow_conversation(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, after: int = 0
) -> Response:
    """The conversation live, after a seq or `Last-Event-ID`."""
    await conversations.find_conversation(visit.database, tenant.id, conversation_id)
    start = min(max(after, 0), HIGHEST_SEQ)
    if not tenant.is_active:
        return _no_stream()
    return open_stream(visit, visit.request, str(tenant.id), str(conversation_id), start)


def _no_stream() -> Response:
    """Streams of a tenant that is off would end at once; this keeps browsers from retrying."""
    return Response(status_code=204)


@router.post("/tenants/{slug}/conversations/{conversation_id}/messages")
async def send_message(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, form: Sent
) -> Response:
    """Store an operator's message once, however often its form is sent."""
    services: Services = visit.request.app.state.services
    found = await conversations.find_conversation(visit.database, tenant.id, conversation_id)
    key = messages.parse_key([form.get("key", "")])
    stored = await store_message(services, visit, tenant, found, form.get("text", ""), key)
    return stored if is_from_script(visit.request) else _go_back(tenant, conversation_id, "sent")


@router.post("/tenants/{slug}/conversations/{conversation_id}/handler")
async def set_handler(
    visit: Signed, tenant: PathTenant, conversation_id: UUID, form: Sent
) -> Response:
    given = form.get("handler", "")
    if given not in {"agent", "human"}:
        raise errors.InvalidRequest.at("body", "handler", kind="invalid_handler")
    handler: Handler = "agent" if given == "agent" else "human"
    changed = await conversations.set_handler(
        visit.database, tenant.id, conversation_id, handler, visit.change
    )
    services: Services = visit.request.app.state.services
    announce_handler(services, str(tenant.id), str(conversation_id), handler)
    if is_from_script(visit.request):
        return answer(changed)
    done = "handed-back" if handler == "agent" else "taken-over"
    return _go_back(tenant, conversation_id, done)


@router.post("/tenants/{slug}/conversations/{conversation_id}/close")
async def close_conversation(visit: Signed, tenant: PathTenant, conversation_id: UUID) -> Response:
    await conversations.close(visit.database, tenant.id, conversation_id, visit.change)
    visit.request.app.state.services.live.touch(str(tenant.id), str(conversation_id))
    return _go_back(tenant, conversation_id, "closed")


def _go_back(tenant: Tenant, conversation_id: UUID, done: str) -> Response:
    return go(f"{CONSOLE}/tenants/{tenant.slug}/conversations/{conversation_id}", done)
