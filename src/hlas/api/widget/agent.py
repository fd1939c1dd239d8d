"""A message and its answer in one request, whole or as a stream."""

import time
from typing import Annotated
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import errors, payloads
from hlas.agent import AnswerSource, Reason, replies
from hlas.agent.options import Options
from hlas.api.streams import ConversationStream
from hlas.api.widget.messages import REPLAYED, account, respond
from hlas.api.widget.steps import admit, require_room, stay
from hlas.conversations import frames, messages
from hlas.conversations.messages import NewMessage
from hlas.conversations.readers import AnswerReader
from hlas.http.answer import PRIVATE, Answer
from hlas.http.gate import MESSAGES, READS
from hlas.http.request import Request
from hlas.http.streams import list_places, list_waiting_places
from hlas.payloads import Metadata
from hlas.services import Services
from hlas.store.drafts import Written
from hlas.visitors import sessions
from hlas.visitors.tokens import Session

EVENT_STREAM = "text/event-stream"


class NewReply(BaseModel):
    """A message to store and answer; without a text, the visitor's last message is answered."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str | None = None
    metadata: Metadata = Field(default_factory=dict)
    options: Options = Field(default_factory=Options)

    @classmethod
    def parse(cls, body: bytes) -> "NewReply":
        try:
            new = cls.model_validate(payloads.loads(body) if body else {})
        except ValidationError as error:
            raise payloads.invalid(error) from None
        if new.text is None:
            new.require_text()
        return new

    def require_text(self) -> None:
        """What is stored with a message needs one; its run may be under way already."""
        given = self.options.model_dump(exclude_defaults=True).keys()
        if self.metadata:
            raise errors.InvalidRequest.at("body", "metadata", kind="text_missing")
        if given - {"on_failure", "debug"}:
            raise errors.InvalidRequest.at("body", "options", kind="text_missing")

    def to_message(self, longest: int) -> NewMessage:
        metadata = {**(self.metadata or {}), **self.options.to_metadata()}
        return NewMessage.check({"text": self.text, "metadata": metadata}, longest)


class UsageAnswer(BaseModel):
    input_tokens: int
    output_tokens: int
    cost_usd: float


class ReplyMeta(BaseModel):
    request_id: str
    run_id: UUID | None
    steps: int = Field(description="requests to the model")
    tools_used: list[str]
    source: AnswerSource
    reason: Annotated[Reason, Field(description="why it is not the model's answer")] | None = None
    usage: UsageAnswer


async def reply_as_agent(services: Services, request: Request) -> Answer:
    """Store a message and wait for its answer; with Idempotency-Key, once.

    With `Accept: text/event-stream` the answer comes as it is made, as frames of the AI SDK's UI
    message stream v1.
    """
    key = messages.parse_key(request.values(b"idempotency-key"))
    session = await _admit(services, request, key)
    new = NewReply.parse(await request.read())
    if new.options.debug:
        await replies.require_debug(services.database, session)
    if new.text is None:
        return await _answer_last(services, request, session, new, key)
    written = await _store(services, request, session, new, key)
    stored = orjson.loads(written.response)
    message_id = stored["message_id"]
    if _wants_stream(request):
        return await _stream(services, request, session, message_id)
    waiting = replies.wait(
        services.database,
        services.live,
        services.runner.answer_unanswered,
        session,
        message_id=message_id,
    )
    with services.streams.hold(list_waiting_places(services.gate.find_address(request))):
        row = await stay(request, waiting)
    request_id = stored.get("request_id", request.id)
    body = replies.render(session, row, new.options, request_id)
    return Answer(200, REPLAYED if written.replayed else PRIVATE, body.encode())


async def _admit(services: Services, request: Request, key: str | None) -> Session:
    """A retry of what was stored starts nothing, so that only the limit of reads applies to it."""
    try:
        session = await admit(services, request, MESSAGES)
        require_room(services, request)
    except errors.RateLimited:
        if key is None or request.session is None:
            raise
        session = request.session
        # The limit may have been hit before the origin was looked at.
        sessions.require_origin(session, request.values(b"origin"))
        await services.gate.consume(request, READS)
        if not await replies.is_used(services.database, session, key):
            raise
    return session


async def _store(
    services: Services, request: Request, session: Session, new: NewReply, key: str | None
) -> Written:
    message = new.to_message(services.settings.max_message_text_len)
    draft = messages.make_draft(session, message, key)
    # A replay names the request that stored the message.
    response = {**orjson.loads(draft.response), "request_id": request.id}
    draft = draft._replace(response=orjson.dumps(response).decode())
    writing = messages.store(services.writer, draft)
    return await account(services.metrics, writing, key, role="user")


async def _answer_last(
    services: Services, request: Request, session: Session, new: NewReply, key: str | None
) -> Answer:
    if _wants_stream(request):
        return await _stream(services, request, session, None)
    waiting = replies.reply_in_full(
        services.database,
        services.live,
        services.runner.answer_unanswered,
        session,
        key,
        new.options,
        request.id,
    )
    with services.streams.hold(list_waiting_places(services.gate.find_address(request))):
        return respond(await account(services.metrics, stay(request, waiting), key))


def _wants_stream(request: Request) -> bool:
    return any(EVENT_STREAM in value.lower() for value in request.values(b"accept"))


async def _stream(
    services: Services, request: Request, session: Session, message_id: str | None
) -> Answer:
    row = await replies.read(services.database, session, message_id=message_id)
    if row["asked"] is None:
        raise errors.UserMessageNotFound
    if row["state"] is None and row["message_id"] is None:
        await services.runner.answer_unanswered(session.tenant_id, session.conversation_id)
    ends_at = min(session.expires_at, time.time() + replies.WAIT_SECONDS)
    reader = AnswerReader(replies.key_of(session), row["asked"], ends_at, session.generation)
    places = list_places(services.gate.find_address(request), session.conversation_id)
    stream = ConversationStream(services, reader, places, request.route)
    return Answer(200, frames.HEADERS, b"", stream)
