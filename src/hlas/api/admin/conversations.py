"""Visitors' conversations: searched, read, closed."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from hlas.api.admin.access import Admin, Page, TenantId, answer, page_of, router
from hlas.api.documentation import problems
from hlas.conversations import conversations
from hlas.conversations.conversations import Search, Status
from hlas.conversations.messages import Role
from hlas.payloads import Line

HIGHEST_SEQ = 2_000_000_000


class LastMessage(BaseModel):
    role: Role
    text: str = Field(description="its first 160 characters")


class Summary(BaseModel):
    id: UUID
    status: Status
    visitor_id: str | None
    is_verified: bool = Field(description="the tenant signed the visitor's id")
    origin: str
    messages: int
    created_at: datetime
    last_message_at: datetime | None
    last_message: LastMessage | None


class Summaries(BaseModel):
    conversations: list[Summary]
    next_cursor: UUID | None = Field(
        description="where to go on; a page of a search may be empty and still have one"
    )


class Conversation(BaseModel):
    id: UUID
    status: Status
    visitor_id: str | None
    is_verified: bool = Field(description="the tenant signed the visitor's id")
    origin: str
    metadata: dict[str, Any]
    messages: int
    created_at: datetime
    last_message_at: datetime | None


class Message(BaseModel):
    id: UUID
    seq: int
    role: Role
    content: str
    metadata: dict[str, Any]
    created_at: datetime


class Messages(BaseModel):
    messages: list[Message]
    next_cursor: int | None


class SearchPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")
    status: Status | None = None
    visitor_id: Annotated[Line, Field(max_length=128)] | None = None
    since: AwareDatetime | None = Field(None, description="began at this moment or later")
    until: AwareDatetime | None = Field(None, description="began before this moment")
    text: Annotated[Line, Field(min_length=2, max_length=200)] | None = Field(
        None, description="in some message; neither case nor accents matter"
    )


class MessagesPage(Page):
    cursor: int = Field(0, ge=0, le=HIGHEST_SEQ, description="a `next_cursor`, or the last seq")


@router.get(
    "/tenants/{slug}/conversations",
    response_model=Summaries,
    summary="List or search conversations",
    responses=problems(404, 422),
)
async def find_conversations(
    access: Admin, tenant_id: TenantId, page: Annotated[SearchPage, Query()]
) -> Response:
    """Newest first. Follow `next_cursor` until it is null."""
    search = Search(page.status, page.visitor_id, page.since, page.until, page.text)
    found, following = await conversations.find(
        access.database,
        tenant_id,
        search,
        before=page.cursor,
        limit=page.limit,
    )
    return page_of("conversations", found, following)


@router.get(
    "/tenants/{slug}/conversations/{conversation_id}",
    response_model=Conversation,
    summary="Read about a conversation",
    responses=problems(404, 422),
)
async def read_conversation(access: Admin, tenant_id: TenantId, conversation_id: UUID) -> Response:
    return answer(await conversations.by_id(access.database, tenant_id, conversation_id))


@router.get(
    "/tenants/{slug}/conversations/{conversation_id}/messages",
    response_model=Messages,
    summary="Read a conversation's messages",
    responses=problems(404, 422),
)
async def read_messages(
    access: Admin,
    tenant_id: TenantId,
    conversation_id: UUID,
    page: Annotated[MessagesPage, Query()],
) -> Response:
    """Oldest first, by seq."""
    found, following = await conversations.transcript(
        access.database,
        tenant_id,
        conversation_id,
        after=page.cursor,
        limit=page.limit,
    )
    return answer({"messages": found, "next_cursor": following})


@router.post(
    "/tenants/{slug}/conversations/{conversation_id}/close",
    response_model=Conversation,
    summary="Close a conversation",
    responses=problems(404, 413, 415, 422),
)
async def close_conversation(access: Admin, tenant_id: TenantId, conversation_id: UUID) -> Response:
    """It takes no more messages; its visitor opens another by opening a session."""
    closed = await conversations.close(access.database, tenant_id, conversation_id, access.change)
    return answer(closed)
