"""Visitors' conversations: search, read, follow, answer, take over, hand back, close."""

import time
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from hlas import log
from hlas.api import streams
from hlas.api.admin.access import (
    Access,
    Admin,
    Page,
    Parameters,
    PathTenant,
    answer,
    answer_page,
    read_body,
    router,
)
from hlas.api.documentation import problems, takes
from hlas.conversations import conversations, frames, messages
from hlas.conversations.conversations import Conversation, Message, Search, Status, Summary
from hlas.conversations.messages import NewMessage
from hlas.conversations.readers import ListReader, Reader
from hlas.http.answer import Answer
from hlas.http.asgi import REQUEST
from hlas.http.gate import ADMIN
from hlas.http.streams import Place
from hlas.payloads import Line
from hlas.services import Services
from hlas.tenants.tenants import Handler, Tenant

HIGHEST_SEQ = 2_000_000_000
# After that the key is checked again: the client resumes.
STREAM_SECONDS = 60.0


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
async def close_conversation(
    access: Admin, tenant: PathTenant, conversation_id: UUID, request: Request
) -> Response:
    """It accepts no more messages; the visitor starts another one by opening a session."""
    closed = await conversations.close(access.database, tenant.id, conversation_id, access.change)
    request.app.state.services.live.touch(str(tenant.id), str(conversation_id))
    return answer(closed)


class OperatorMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(description="what the operator says, in Markdown")


class HandlerChange(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    handler: Handler


class Stored(BaseModel):
    conversation_id: UUID
    message_id: UUID


class StreamStart(Parameters):
    after: int = Field(0, ge=0, le=HIGHEST_SEQ, description="a seq, exclusive")


@router.post(
    "/tenants/{slug}/conversations/{conversation_id}/messages",
    response_model=Stored,
    summary="Answer as a person",
    responses=problems(400, 404, 408, 409, 413, 415, 422),
    openapi_extra=takes(OperatorMessage),
)
async def send_message(
    access: Admin,
    tenant: PathTenant,
    conversation_id: UUID,
    request: Request,
    sent: Annotated[OperatorMessage, Depends(read_body(OperatorMessage))],
) -> Response:
    """Store an operator's message and take the conversation over; with Idempotency-Key, once."""
    found = await conversations.find_conversation(access.database, tenant.id, conversation_id)
    key = messages.parse_key(request.scope[REQUEST].values(b"idempotency-key"))
    services: Services = request.app.state.services
    return await store_message(services, access, tenant, found, sent.text, key)


async def store_message(
    services: Services,
    access: Access,
    tenant: Tenant,
    conversation: Conversation,
    text: str,
    key: str | None,
) -> Response:
    """Store what somebody who may read the conversation says there."""
    message = NewMessage.check({"text": text}, services.settings.max_message_text_len)
    written = await messages.create_as_operator(
        services.writer, str(tenant.id), str(conversation.id), message, key
    )
    if not written.replayed:
        services.metrics.message("operator")
        if conversation.handler == "agent":
            await conversations.record_takeover(
                access.database, tenant.id, conversation.id, access.change
            )
            log.info("taken_over", conversation_id=str(conversation.id))
    headers = {"Cache-Control": "no-store"}
    if written.replayed:
        headers["Idempotent-Replayed"] = "true"
    return Response(written.response, 200, headers, media_type="application/json")


@router.put(
    "/tenants/{slug}/conversations/{conversation_id}/handler",
    response_model=Conversation,
    summary="Take a conversation over, or hand it back",
    responses=problems(404, 413, 415, 422),
    openapi_extra=takes(HandlerChange),
)
async def set_handler(
    access: Admin,
    tenant: PathTenant,
    conversation_id: UUID,
    request: Request,
    sent: Annotated[HandlerChange, Depends(read_body(HandlerChange))],
) -> Response:
    """Handed back to the agent, the visitor's messages without an answer are answered."""
    changed = await conversations.set_handler(
        access.database, tenant.id, conversation_id, sent.handler, access.change
    )
    announce_handler(request.app.state.services, str(tenant.id), str(changed.id), sent.handler)
    return answer(changed)


def announce_handler(
    services: Services, tenant_id: str, conversation_id: str, handler: Handler
) -> None:
    """Let everybody know who answers; the agent may have something to answer."""
    services.live.touch(tenant_id, conversation_id)
    if handler == "agent":
        log.info("handed_back", conversation_id=conversation_id)
        services.runner.on_waiting_run()
    else:
        log.info("taken_over", conversation_id=conversation_id)


@router.get(
    "/tenants/{slug}/conversations/{conversation_id}/stream",
    response_class=StreamingResponse,
    summary="Follow a conversation",
    responses={
        200: {
            "description": "Server-sent events, as for the visitor",
            "content": {"text/event-stream": {}},
        },
        **problems(404, 422, 429),
    },
)
async def follow_conversation(
    access: Admin,
    tenant: PathTenant,
    conversation_id: UUID,
    request: Request,
    start: Annotated[StreamStart, Query()],
) -> Response:
    """Every message after `after` or `Last-Event-ID`, and the answer that is being made."""
    await conversations.find_conversation(access.database, tenant.id, conversation_id)
    return open_stream(access, request, str(tenant.id), str(conversation_id), start.after)


def open_stream(
    access: Access, request: Request, tenant_id: str, conversation_id: str, after: int
) -> Response:
    """The stream of a conversation for an administrator who may read it."""
    cursor = streams.find_cursor(request.scope[REQUEST], after)
    ends_at = time.time() + STREAM_SECONDS
    reader = Reader((tenant_id, conversation_id), cursor, ends_at, digest=access.digest)
    services: Services = request.app.state.services
    stream = streams.ConversationStream(services, reader, _list_places(access), ADMIN)
    return streams.respond(Answer(200, frames.HEADERS, b"", stream))


def open_list_stream(access: Access, request: Request, tenant_id: str) -> Response:
    """Tells when conversations of a tenant change, for an administrator who may list them."""
    services: Services = request.app.state.services
    reader = ListReader(tenant_id, access.digest)
    places = _list_places(access)
    stream = streams.ListStream(services, reader, places, ADMIN, STREAM_SECONDS)
    return streams.respond(Answer(200, frames.EVENT_STREAM, b"", stream))


def _list_places(access: Access) -> list[Place]:
    """An administrator's streams are not counted as the visitor's."""
    return [("key", access.administrator.id)]
