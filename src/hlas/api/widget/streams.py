"""The conversation, live: its stream, and stopping the answer that is being made."""

import time
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hlas import log, payloads
from hlas.api.streams import ConversationStream, find_cursor
from hlas.api.widget.steps import authenticate, require_own
from hlas.conversations import frames, runs
from hlas.conversations.frames import Cursor
from hlas.conversations.readers import Reader
from hlas.http.answer import Answer
from hlas.http.gate import READS
from hlas.http.request import Request
from hlas.http.streams import list_places
from hlas.services import Services
from hlas.visitors import sessions
from hlas.visitors.tokens import LEEWAY_SECONDS, Session


class Start(BaseModel):
    """Where a stream starts, unless `Last-Event-ID` says so."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(0, ge=0, le=2_000_000_000, description="a seq, exclusive")


async def open_stream(services: Services, request: Request) -> Answer:
    """Every message after the cursor, and the answer that is being made, as it is made.

    Server-sent events; each `data` is a frame of the AI SDK's UI message stream v1.
    """
    await services.gate.consume(request, READS)
    session = authenticate(services, request)
    require_own(request, session)
    cursor = _find_cursor(request)
    await sessions.check(services.database, session)
    places = list_places(services.gate.find_address(request), session.conversation_id)
    reader = Reader(
        (session.tenant_id, session.conversation_id), cursor, _find_end(session), session.generation
    )
    stream = ConversationStream(services, reader, places, request.route)
    return Answer(200, frames.HEADERS, b"", stream)


async def stop_run(services: Services, request: Request) -> Answer:
    """End the answer that is being made; what was said so far is stored."""
    # A visitor who has sent as many messages as allowed may still stop the answer.
    await services.gate.consume(request, READS)
    session = authenticate(services, request)
    require_own(request, session)
    payloads.require_empty(await request.read())
    await sessions.check(services.database, session)
    await runs.stop(services.database, session.tenant_id, session.conversation_id)
    services.live.touch(session.tenant_id, session.conversation_id)
    log.info("run_stopped")
    return Answer(204, (), b"")


def _find_cursor(request: Request) -> Cursor:
    try:
        query = dict(parse_qsl(request.query.decode("latin-1"), keep_blank_values=True))
        start = Start.model_validate(query)
    except ValidationError as error:
        raise payloads.invalid(error, "query") from None
    return find_cursor(request, start.after)


def _find_end(session: Session) -> float:
    """When the token expires, or the end of the leeway if it already has."""
    now = time.time()
    if session.expires_at > now:
        return session.expires_at
    return session.expires_at + LEEWAY_SECONDS
