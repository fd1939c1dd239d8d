"""What visitors' browsers call. Tenant and conversation come from the verified token alone."""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID

import orjson
from fastapi import APIRouter, Response
from fastapi import Request as FrameworkRequest
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from hlas.api.documentation import describe_body, problems
from hlas.api.streams import respond
from hlas.api.widget.agent import NewReply, ReplyMeta, reply_as_agent
from hlas.api.widget.messages import Page, create_message, create_reply, read_history
from hlas.api.widget.people import (
    PersonAnswer,
    PersonWish,
    ask_for_person,
    keep_contact,
    rate_message,
)
from hlas.api.widget.sessions import open_session, refresh_session
from hlas.api.widget.steps import authenticate
from hlas.api.widget.streams import Start, open_stream, stop_run
from hlas.conversations.contacts import Contact, NewContact
from hlas.conversations.messages import NewMessage, Role
from hlas.conversations.ratings import NewRating
from hlas.http.answer import PRIVATE, Answer
from hlas.http.asgi import REQUEST
from hlas.http.gate import READS
from hlas.http.lane import Line
from hlas.http.request import Request
from hlas.services import Services
from hlas.visitors import sessions
from hlas.visitors.sessions import NewSession, SessionAnswer

router = APIRouter(prefix="/widget", tags=["widget"])

# A line with the services it works with still to be given.
Route = Callable[[Services, Request], Coroutine[Any, Any, Answer]]


class WhoAmI(BaseModel):
    tenant_id: UUID
    conversation_id: UUID


class MessageAnswer(BaseModel):
    conversation_id: UUID
    message_id: UUID


class Suggestion(BaseModel):
    text: str


class ReplyAnswer(MessageAnswer):
    text: str
    source: Literal["agent", "knowledge", "smalltalk", "fallback"]
    suggestions: list[Suggestion] = Field(description="what the visitor may have meant")


class StoredMessage(BaseModel):
    id: UUID
    seq: int = Field(description="1, 2, 3 ... in the conversation, without gaps")
    role: Role
    content: str
    metadata: dict[str, Any]
    created_at: datetime


class AgentReply(BaseModel):
    conversation_id: UUID
    user_message: StoredMessage
    assistant_message: StoredMessage
    meta: ReplyMeta
    trace: list[dict[str, Any]] | None = Field(
        None, description="what happened, step by step; with `debug` only"
    )


class Paging(BaseModel):
    limit: int
    offset: int | None = Field(description="null when `after` was given")
    has_more: bool
    next_after: int = Field(description="the `after` of the next page")


class History(BaseModel):
    conversation_id: UUID
    messages: list[StoredMessage]
    paging: Paging


def _header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "in": "header",
        "name": name,
        "description": description,
        "schema": {"type": "string", **schema},
    }


_AUTHORIZATION = _header("Authorization", "Bearer token")
_ORIGIN = _header("Origin", "the website that asks")
_IDEMPOTENCY_KEY = _header(
    "Idempotency-Key", "makes the request safe to repeat", minLength=1, maxLength=255
)


def _path_parameter(name: str, description: str) -> dict[str, Any]:
    return {
        "in": "path",
        "name": name,
        "description": description,
        "required": True,
        "schema": {"type": "string"},
    }


_CONVERSATION = _path_parameter("conversation_id", "the token's own conversation")
_MESSAGE = _path_parameter("message_id", "an answer in the token's conversation")


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    return [
        {"in": "query", "name": name, "required": False, "schema": schema}
        for name, schema in model.model_json_schema()["properties"].items()
    ]


_EMPTY_BODY = {"content": {"application/json": {"schema": {"type": "object"}}}, "required": False}


def _framed(route: Route) -> Callable[[FrameworkRequest], Awaitable[Response]]:
    """Wrap a line as a FastAPI endpoint."""

    async def endpoint(request: FrameworkRequest) -> Response:
        answer = await route(request.app.state.services, request.scope[REQUEST])
        if answer.stream is not None:
            return respond(answer)
        response = Response(answer.body, answer.status)
        length = (b"content-length", str(len(answer.body)).encode())
        response.raw_headers = [*answer.headers, *([] if answer.status == 204 else [length])]
        return response

    endpoint.__doc__ = route.__doc__
    return endpoint


async def whoami(services: Services, request: Request) -> Answer:
    """Who this token speaks for."""
    await services.gate.consume(request, READS)
    session = authenticate(services, request)
    await sessions.check(services.database, session)
    body = {"tenant_id": session.tenant_id, "conversation_id": session.conversation_id}
    return Answer(200, PRIVATE[:1], orjson.dumps(body))


_ROUTES: list[tuple[str, str, Route, dict[str, Any]]] = [
    (
        "POST",
        "/session",
        open_session,
        {
            "response_model": SessionAnswer,
            "summary": "Open a session",
            "responses": problems(400, 401, 403, 408, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_ORIGIN],
                "requestBody": describe_body(NewSession, required=False),
            },
        },
    ),
    (
        "POST",
        "/session/refresh",
        refresh_session,
        {
            "response_model": SessionAnswer,
            "summary": "Renew the token of a session",
            "responses": problems(400, 401, 403, 413, 415, 422, 429, 503),
            "openapi_extra": {"parameters": [_AUTHORIZATION, _ORIGIN]},
        },
    ),
    (
        "GET",
        "/whoami",
        whoami,
        {
            "response_model": WhoAmI,
            "summary": "Who this token speaks for",
            "responses": problems(401, 403, 422, 429, 503),
            "openapi_extra": {"parameters": [_AUTHORIZATION]},
        },
    ),
    (
        "POST",
        "/messages",
        create_message,
        {
            "response_model": MessageAnswer,
            "summary": "Send a message",
            "responses": problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _IDEMPOTENCY_KEY],
                "requestBody": describe_body(NewMessage),
            },
        },
    ),
    (
        "POST",
        "/messages/assistant",
        create_reply,
        {
            "response_model": ReplyAnswer,
            "summary": "Wait for the answer",
            "responses": problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _IDEMPOTENCY_KEY],
                "requestBody": _EMPTY_BODY,
            },
        },
    ),
    (
        "POST",
        "/agent/reply",
        reply_as_agent,
        {
            "response_model": AgentReply,
            "summary": "Send a message and get its answer",
            "responses": {
                200: {"content": {"text/event-stream": {}}},
                **problems(400, 401, 402, 403, 408, 409, 413, 415, 422, 429, 502, 503, 504),
            },
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _IDEMPOTENCY_KEY],
                "requestBody": describe_body(NewReply, required=False),
            },
        },
    ),
    (
        "GET",
        "/conversations/{conversation_id}/messages",
        read_history,
        {
            "response_model": History,
            "summary": "Read the conversation",
            "responses": problems(401, 403, 404, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _CONVERSATION, *_query(Page)],
            },
        },
    ),
    (
        "GET",
        "/conversations/{conversation_id}/stream",
        open_stream,
        {
            "response_class": StreamingResponse,
            "summary": "Follow the conversation",
            "responses": {
                200: {
                    "description": "Server-sent events until the token expires",
                    "content": {"text/event-stream": {}},
                },
                **problems(401, 403, 404, 422, 429, 503),
            },
            "openapi_extra": {
                "parameters": [
                    _AUTHORIZATION,
                    _CONVERSATION,
                    _header("Last-Event-ID", "the last frame that was seen"),
                    *_query(Start),
                ],
            },
        },
    ),
    (
        "POST",
        "/conversations/{conversation_id}/stop",
        stop_run,
        {
            "status_code": 204,
            "response_class": Response,
            "summary": "Stop the answer",
            "responses": problems(401, 403, 404, 408, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _CONVERSATION],
                "requestBody": _EMPTY_BODY,
            },
        },
    ),
    (
        "POST",
        "/conversations/{conversation_id}/person",
        ask_for_person,
        {
            "response_model": PersonAnswer,
            "summary": "Ask for a person",
            "responses": problems(401, 403, 404, 408, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _CONVERSATION],
                "requestBody": describe_body(PersonWish, required=False),
            },
        },
    ),
    (
        "PUT",
        "/conversations/{conversation_id}/contact",
        keep_contact,
        {
            "response_model": Contact,
            "summary": "Say how to reach the visitor",
            "responses": problems(401, 403, 404, 408, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _CONVERSATION],
                "requestBody": describe_body(NewContact),
            },
        },
    ),
    (
        "PUT",
        "/messages/{message_id}/rating",
        rate_message,
        {
            "status_code": 204,
            "response_class": Response,
            "summary": "Rate an answer",
            "responses": problems(401, 403, 404, 408, 413, 415, 422, 429, 503),
            "openapi_extra": {
                "parameters": [_AUTHORIZATION, _MESSAGE],
                "requestBody": describe_body(NewRating),
            },
        },
    ),
]

for _method, _path, _route, _documentation in _ROUTES:
    router.add_api_route(_path, _framed(_route), methods=[_method], **_documentation)


def lines(services: Services) -> dict[tuple[str, str], Line]:
    """What the lane answers: every route of visitors."""
    return {
        (method, f"{router.prefix}{path}"): Line(
            partial(route, services), in_place=route is create_message
        )
        for method, path, route, _ in _ROUTES
    }
