"""Visitors' conversations: search, read and close."""

from typing import Annotated
from uuid import UUID

from fastapi import Query, Response
from pydantic import AwareDatetime, BaseModel, Field

from hlas.api.admin.access import Admin, Page, PathTenant, answer, answer_page, router
from hlas.api.documentation import problems
from hlas.conversations import conversations
from hlas.conversations.conversations import Conversation, Message, Search, Status, Summary
from hlas.payloads import Line

HIGHEST_SEQ = 2_000_000_000


class Summaries(BaseModel):
    conversations: list[Summary]
    next_cursor: UUID | None = Field(
        description="of the next page; an empty page of a search may have one, too"
    )


class Messages(BaseModel):
    messages: list[Message]
    next_cursor: int | None


class SearchPage(Page):
    cursor: UUID | None = Field(None, description="a `next_cursor`")
    status: Status | None = None
    visitor_id: Annotated[Line, Field(max_length=128)] | None = None
    since: AwareDatetime | None = Field(None, description="started at this moment or later")
    until: AwareDatetime | None = Field(None, description="started before this moment")
    text: Annotated[Line, Field(min_length=2, max_length=200)] | None = Field(
        None, description="in any message; case and accents are ignored"
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
    access: Admin, tenant: PathTenant, page: Annotated[SearchPage, Query()]
) -> Response:
    """Newest first. Follow `next_cursor` until it is null."""
    search = Search(page.status, page.visitor_id, page.since, page.until, page.text)
    found, cursor = await conversations.find(
        access.database,
        tenant.id,
        search,
        before=page.cursor,
        limit=page.limit,
    )
    return answer_page("conversations", found, cursor)


@router.get(
    "/tenants/{slug}/conversations/{conversation_id}",
    response_model=Conversation,
    summary="Read about a conversation",
    responses=problems(404, 422),
)
async def read_conversation(access: Admin, tenant: PathTenant, conversation_id: UUID) -> Response:
    found = await conversations.find_conversation(access.database, tenant.id, conversation_id)
    return answer(found)


@router.get(
    "/tenants/{slug}/conversations/{conversation_id}/messages",
    response_model=Messages,
    summary="Read a conversation's messages",
    responses=problems(404, 422),
)
async def read_messages(
    access: Admin,
    tenant: PathTenant,
    conversation_id: UUID,
    page: Annotated[MessagesPage, Query()],
) -> Response:
    """Oldest first, by seq."""
    found, cursor = await conversations.read_messages(
        access.database,
        tenant.id,
        conversation_id,
        after=page.cursor,
        limit=page.limit,
    )
    return answer({"messages": found, "next_cursor": cursor})


@router.post(
    "/tenants/{slug}/conversations/{conversation_id}/close",
    response_model=Conversation,
    summary="Close a conversation",
    responses=problems(404, 413, 415, 422),
)
async def close_conversation(access: Admin, tenant: PathTenant, conversation_id: UUID) -> Response:
    """It accepts no more messages; the visitor starts another one by opening a session."""
    closed = await conversations.close(access.database, tenant.id, conversation_id, access.change)
    return answer(closed)
