"""Sending a message, asking for its answer, reading the conversation."""

from collections.abc import Awaitable
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import errors, log, payloads
from hlas.agent import replies
from hlas.api.widget.steps import admit, authenticate, require_own, require_room, stay
from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.http.answer import PRIVATE, Answer
from hlas.http.gate import MESSAGES, READS, REPLIES
from hlas.http.request import Request
from hlas.observe.metrics import Metrics
from hlas.services import Services
from hlas.store.drafts import Written
from hlas.visitors import sessions

REPLAYED = (*PRIVATE, (b"idempotent-replayed", b"true"))


class Page(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=100)
    offset: int | None = Field(None, ge=0, le=2_000_000_000, description="how many to skip; 0")
    after: int | None = Field(None, ge=0, le=2_000_000_000, description="a seq, exclusive")


async def create_message(services: Services, request: Request) -> Answer:
    """Store a visitor's message; with Idempotency-Key, once however often it is sent."""
    session = await admit(services, request, MESSAGES)
    key = messages.parse_key(request.values(b"idempotency-key"))
    content = await request.read()
    message = NewMessage.parse(content, services.settings.max_message_text_len)
    writing = messages.create(services.writer, session, message, key)
    return respond(await account(services.metrics, writing, key, role="user"))


async def create_reply(services: Services, request: Request) -> Answer:
    """Wait for the answer to the visitor's messages; with Idempotency-Key, once."""
    key = messages.parse_key(request.values(b"idempotency-key"))
    try:
        session = await admit(services, request, REPLIES)
        places = require_room(services, request)
    except errors.RateLimited:
        replay = await _find_replay(services, request, key)
        if replay is None:
            raise
        return replay
    payloads.require_empty(await request.read())
    waiting = replies.reply(
        services.database, services.live, services.runner.answer_unanswered, session, key
    )
    with services.streams.hold(places):
        return respond(await account(services.metrics, stay(request, waiting), key))


async def _find_replay(services: Services, request: Request, key: str | None) -> Answer | None:
    """A retry of what was answered costs nothing but a read, so only the limit of reads applies."""
    if key is None or request.session is None:
        return None
    # The limit may have been hit before the origin was looked at.
    sessions.require_origin(request.session, request.values(b"origin"))
    await services.gate.consume(request, READS)
    found = await replies.find_replay(services.database, request.session, key)
    if found is None:
        return None
    log.info("idempotency_hit", reason="replayed")
    services.metrics.idempotency("hit")
    return respond(found)


async def account(
    metrics: Metrics, writing: Awaitable[Written], key: str | None, role: str = ""
) -> Written:
    """What was stored, now or before, and one idempotency event of a keyed request."""
    try:
        written = await writing
    except (errors.IdempotencyInProgress, errors.IdempotencyKeyConflict) as error:
        in_progress = isinstance(error, errors.IdempotencyInProgress)
        reason = "in_progress" if in_progress else "payload_differs"
        log.warning("idempotency_conflict", reason=reason)
        metrics.idempotency("conflict")
        raise
    if written.replayed:
        log.info("idempotency_hit", reason="replayed")
        metrics.idempotency("hit")
        return written
    if role:
        metrics.message(role)
    if key is not None:
        log.info("idempotency_miss", reason="created")
        metrics.idempotency("miss")
    return written


def respond(written: Written) -> Answer:
    """The stored response as it was first given."""
    headers = REPLAYED if written.replayed else PRIVATE
    return Answer(200, headers, written.response.encode())


async def read_history(services: Services, request: Request) -> Answer:
    """Oldest first. A reader that has seen seq n asks for `after=n` and misses nothing."""
    await services.gate.consume(request, READS)
    session = authenticate(services, request)
    page = _page(request.query)
    require_own(request, session)
    if page.after is not None and page.offset is not None:
        raise errors.InvalidRequest.at("query", "offset", kind="offset_with_after")
    history = await messages.read_history(
        services.database, session, limit=page.limit, offset=page.offset or 0, after=page.after
    )
    return Answer(200, PRIVATE, history)


def _page(query: bytes) -> Page:
    try:
        return Page.model_validate(dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)))
    except ValidationError as error:
        raise payloads.invalid(error, "query") from None
