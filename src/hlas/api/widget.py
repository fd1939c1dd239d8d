"""What visitors' browsers call. Tenant and conversation come from the verified token alone."""

from collections.abc import Awaitable
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import body, errors, messages, payloads, replies, sessions, telemetry
from hlas.api.documentation import problems
from hlas.api.reads import LIMITED
from hlas.asgi import header_values
from hlas.gate import MESSAGES, REPLIES, SESSION
from hlas.messages import NewMessage
from hlas.metrics import Metrics
from hlas.origins import Origin
from hlas.services import Services
from hlas.sessions import NewSession
from hlas.tokens import Session
from hlas.writer import Written

# What is sent has limits of its own and skips the router; everything else is a read.
router = APIRouter(prefix="/widget", tags=["widget"], dependencies=LIMITED)


class SessionAnswer(BaseModel):
    conversation_id: UUID
    token: str
    expires_in: int = Field(description="seconds")
    ui_config: dict[str, Any]


class WhoAmI(BaseModel):
    tenant_id: UUID
    conversation_id: UUID


class MessageAnswer(BaseModel):
    conversation_id: UUID
    message_id: UUID


class ReplyAnswer(MessageAnswer):
    text: str


class StoredMessage(BaseModel):
    id: UUID
    seq: int = Field(description="1, 2, 3 ... in the conversation, without gaps")
    role: messages.Role
    content: str
    metadata: dict[str, Any]
    created_at: datetime


class Paging(BaseModel):
    limit: int
    offset: int | None = Field(description="null when `after` was given")
    has_more: bool
    next_after: int = Field(description="the `after` of the next page")


class History(BaseModel):
    conversation_id: UUID
    messages: list[StoredMessage]
    paging: Paging


class Page(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=100)
    offset: int | None = Field(None, ge=0, le=2_000_000_000, description="how many to skip; 0")
    after: int | None = Field(None, ge=0, le=2_000_000_000, description="a seq, exclusive")


class RawResponse(Response):
    """A body and headers that are ready: nothing is computed on the path of a message."""

    def __init__(self, content: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status_code = 200
        self.background = None
        self.body = content
        self.raw_headers = [(b"content-length", b"%d" % len(content)), *headers]


_AUTHORIZATION = {
    "in": "header",
    "name": "Authorization",
    "description": "Bearer token",
    "schema": {"type": "string"},
}
_IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "description": "makes the request safe to repeat",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}

STORED = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
REPLAYED = (*STORED, (b"idempotent-replayed", b"true"))


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def json_response(content: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), headers=headers, media_type="application/json")


def verify(request: Request, services: Services) -> Session:
    """The session a request's token claims; the statement that follows confirms it."""
    try:
        token = sessions.bearer(header_values(request.scope, b"authorization"))
        session = services.tokens.verify(token)
    except errors.AuthenticationError as error:
        _attribute(request, services, error)
        raise
    _bind(request, session)
    sessions.require_origin(session, header_values(request.scope, b"origin"))
    return session


def _bind(request: Request, session: Session) -> None:
    request.scope["state"]["session"] = session
    telemetry.bind(tenant_id=session.tenant_id, conversation_id=session.conversation_id)


def _attribute(request: Request, services: Services, error: errors.AuthenticationError) -> None:
    """A token that proves nothing still came from somewhere, or so its Origin says."""
    origins = header_values(request.scope, b"origin")
    origin = Origin.parse(origins[0]) if len(origins) == 1 else None
    host = services.origins.remembered(origin) if origin else None
    error.tenant_id = host.tenant_id if host else None


async def require_widget_session(
    request: Request, authorization: Annotated[str, Header(description="Bearer token")] = ""
) -> Session:
    del authorization  # declared for the documentation; read raw, since two headers are an error
    return verify(request, services_of(request))


WidgetSession = Annotated[Session, Depends(require_widget_session)]


@router.post(
    "/session",
    response_model=SessionAnswer,
    summary="Open a session",
    responses=problems(400, 401, 403, 408, 413, 415, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "content": {"application/json": {"schema": NewSession.model_json_schema()}},
            "required": False,
        },
        "parameters": [{"in": "header", "name": "Origin", "schema": {"type": "string"}}],
    },
)
async def open_session(request: Request) -> Response:
    """A visitor's browser asks from an allowed domain and gets a conversation and its token.

    With `identity` it is the visitor's own conversation, on every device.
    """
    services = services_of(request)
    try:
        answer, session = await _open(request, services)
    except errors.HlasError as error:
        if error.status < 500 and not isinstance(error, errors.RateLimited):
            telemetry.warning("session_denied", reason=error.code, **_told(request, error))
            services.metrics.session(error.code)
        raise
    _bind(request, session)
    telemetry.info("session_created")
    services.metrics.session("created")
    return json_response(answer, {"Cache-Control": "no-store"})


def _told(request: Request, error: errors.HlasError) -> dict[str, str]:
    """For who must mend it; the origin is spelled our way, never as it was sent."""
    told = {"why": error.reason} if isinstance(error, errors.InvalidIdentity) else {}
    with suppress(errors.InvalidOrigin):
        told["origin"] = str(_origin(request))
    return told


def _origin(request: Request) -> Origin:
    scope = request.scope
    return sessions.request_origin(
        header_values(scope, b"origin"), header_values(scope, b"referer")
    )


async def _open(request: Request, services: Services) -> tuple[dict[str, Any], Session]:
    scope = request.scope
    try:
        origin = _origin(request)
        host = await services.origins.active_host(origin)
    except (errors.InvalidOrigin, errors.DomainNotAllowed, errors.TenantInactive):
        await services.gate.admit(scope, SESSION)
        raise
    telemetry.bind(tenant_id=host.tenant_id)
    await services.gate.admit(scope, SESSION, host.tenant_id)
    new = _new_session(await body.read(request.receive))
    return await sessions.open_session(services.database, services.tokens, origin, new)


def _new_session(content: bytes) -> NewSession:
    if not content:
        return NewSession()
    try:
        return NewSession.model_validate(payloads.loads(content))
    except ValidationError as error:
        raise payloads.invalid(error) from None


@router.post(
    "/session/refresh",
    response_model=SessionAnswer,
    summary="Renew the token of a session",
    responses=problems(400, 401, 403, 413, 415, 422, 429, 503),
    openapi_extra={
        "parameters": [{"in": "header", "name": "Origin", "schema": {"type": "string"}}]
    },
)
async def refresh_session(
    request: Request, authorization: Annotated[str, Header(description="Bearer token")] = ""
) -> Response:
    """The same conversation, a new token; the old one may have expired a while ago."""
    del authorization
    services, origins = services_of(request), header_values(request.scope, b"origin")
    window = services.settings.widget_session_refresh_hours * 3600
    longest = services.settings.widget_session_max_days * 86400
    try:
        token = sessions.bearer(header_values(request.scope, b"authorization"))
        session = services.tokens.verify_for_refresh(token, window, longest)
    except errors.AuthenticationError as error:
        _attribute(request, services, error)
        raise
    _bind(request, session)
    # Browsers send it with every POST: who has none is no page, and gets no further token.
    if not origins:
        raise errors.InvalidOrigin
    sessions.require_origin(session, origins)
    answer, _ = await sessions.refresh(services.database, services.tokens, session)
    return json_response(answer, {"Cache-Control": "no-store"})


@router.get(
    "/whoami",
    response_model=WhoAmI,
    summary="Who this token speaks for",
    responses=problems(401, 403, 422, 429, 503),
)
async def whoami(request: Request, session: WidgetSession) -> Response:
    await sessions.check(services_of(request).database, session)
    return json_response(
        {"tenant_id": session.tenant_id, "conversation_id": session.conversation_id}
    )


@router.post(
    "/messages",
    response_model=MessageAnswer,
    summary="Send a message",
    responses=problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "content": {"application/json": {"schema": NewMessage.model_json_schema()}},
            "required": True,
        },
        "parameters": [_AUTHORIZATION, _IDEMPOTENCY_KEY],
    },
)
async def create_message(request: Request) -> Response:
    """Store a visitor's message; with Idempotency-Key, once however often it is sent."""
    services = services_of(request)
    session = await _admitted(request, services, MESSAGES)
    key = messages.parse_key(header_values(request.scope, b"idempotency-key"))
    content = await body.read(request.receive)
    message = NewMessage.parse(content, services.settings.max_message_text_len)
    return await stored(services, messages.create(services.writer, session, message, key), key)


async def _admitted(request: Request, services: Services, route: str) -> Session:
    """The session of a request within its limits; without a session only its address pays."""
    gate = services.gate
    try:
        session = verify(request, services)
    except errors.HlasError:
        await gate.admit(request.scope, route)
        raise
    await gate.admit(request.scope, route, session.tenant_id, session.conversation_id)
    return session


@router.post(
    "/messages/assistant",
    response_model=ReplyAnswer,
    summary="Answer the last message",
    responses=problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
    openapi_extra={
        "requestBody": {
            "content": {"application/json": {"schema": {"type": "object"}}},
            "required": False,
        },
        "parameters": [_AUTHORIZATION, _IDEMPOTENCY_KEY],
    },
)
async def create_reply(request: Request) -> Response:
    """The assistant's answer to the visitor's last message; with Idempotency-Key, once."""
    services = services_of(request)
    session = await _admitted(request, services, REPLIES)
    key = messages.parse_key(header_values(request.scope, b"idempotency-key"))
    _require_empty(await body.read(request.receive))
    writing = replies.reply(services.database, services.writer, services.agent, session, key)
    return await stored(services, writing, key, role="assistant")


def _require_empty(content: bytes) -> None:
    """Nothing can be said with a reply yet: no body, or an empty object."""
    if content and payloads.loads(content) != {}:
        raise errors.InvalidRequest.at("body", kind="extra_forbidden")


async def stored(
    services: Services, writing: Awaitable[Written], key: str | None, role: str = "user"
) -> Response:
    """The stored response as it was first given."""
    try:
        written = await writing
    except errors.HlasError as error:
        note_failure(services.metrics, error)
        raise
    note_success(services.metrics, written, key, role)
    return RawResponse(written.response.encode(), REPLAYED if written.replayed else STORED)


def note_success(metrics: Metrics, written: Written, key: str | None, role: str = "user") -> None:
    """One idempotency event for each keyed request, and a count of what was stored."""
    if written.replayed:
        telemetry.info("idempotency_hit", reason="replayed")
        metrics.idempotency("hit")
        return
    metrics.message(role)
    if key is not None:
        telemetry.info("idempotency_miss", reason="created")
        metrics.idempotency("miss")


def note_failure(metrics: Metrics, error: Exception) -> None:
    match error:
        case errors.IdempotencyInProgress():
            reason = "in_progress"
        case errors.IdempotencyKeyConflict():
            reason = "payload_differs"
        case _:
            return
    telemetry.warning("idempotency_conflict", reason=reason)
    metrics.idempotency("conflict")


@router.get(
    "/conversations/{conversation_id}/messages",
    response_model=History,
    summary="Read the conversation",
    responses=problems(401, 403, 404, 422, 429, 503),
)
async def history(
    request: Request,
    session: WidgetSession,
    conversation_id: Annotated[str, Path(description="the token's own conversation")],
    page: Annotated[Page, Query()],
) -> Response:
    """Oldest first. A reader that has seen seq n asks for `after=n` and misses nothing."""
    if conversation_id.lower() != session.conversation_id:
        raise errors.ConversationMismatch
    if page.after is not None and page.offset is not None:
        raise errors.InvalidRequest.at("query", "offset", kind="offset_with_after")
    return json_response(
        await messages.history(
            services_of(request).database,
            session,
            limit=page.limit,
            offset=page.offset or 0,
            after=page.after,
        ),
        {"Cache-Control": "no-store"},
    )
