"""The steps that visitors' requests have in common, each written once."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hlas import errors
from hlas.http.request import Request
from hlas.http.streams import Place, list_waiting_places
from hlas.services import Services
from hlas.visitors import sessions
from hlas.visitors.origins import Origin
from hlas.visitors.tokens import Session

Result = TypeVar("Result")


async def admit(services: Services, request: Request, bucket: str) -> Session:
    """The session of a request within its limits; without a session only its address pays."""
    try:
        session = authenticate(services, request)
    except errors.HlasError:
        await services.gate.consume(request, bucket)
        raise
    await services.gate.consume(request, bucket, session.tenant_id, session.conversation_id)
    return session


def authenticate(services: Services, request: Request) -> Session:
    """The session a request's token claims; the statement that follows confirms it."""
    try:
        token = sessions.bearer(request.values(b"authorization"))
        session = services.tokens.verify(token)
    except errors.AuthenticationError as error:
        attribute(services, request, error)
        raise
    bind(request, session)
    sessions.require_origin(session, request.values(b"origin"))
    return session


def require_room(services: Services, request: Request) -> list[Place]:
    """Where a request counts that is about to wait for an answer; raise if too many do."""
    places = list_waiting_places(services.gate.find_address(request))
    services.streams.require_room(places, request.route)
    return places


async def stay(request: Request, waiting: Coroutine[Any, Any, Result]) -> Result:
    """Wait for a result, and no longer than the client does."""
    task = asyncio.create_task(waiting)
    lost = asyncio.ensure_future(request.wait_lost())
    try:
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise errors.RequestTimeout
    finally:
        task.cancel()
        lost.cancel()


def require_own(request: Request, session: Session) -> None:
    """Refuse a path with another conversation than the session's."""
    if request.path.split("/")[3].lower() != session.conversation_id:
        raise errors.ConversationMismatch


def bind(request: Request, session: Session) -> None:
    """From here on the request speaks for this session, in the log too."""
    request.session = session
    request.context["tenant_id"] = session.tenant_id
    request.context["conversation_id"] = session.conversation_id


def attribute(services: Services, request: Request, error: errors.AuthenticationError) -> None:
    """Attribute a failed authentication to the tenant of its Origin, for metrics."""
    origins = request.values(b"origin")
    origin = Origin.parse(origins[0]) if len(origins) == 1 else None
    host = services.origins.recall(origin) if origin else None
    error.tenant_id = host.tenant_id if host else None
