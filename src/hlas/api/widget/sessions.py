"""Opening and renewing a visitor's session."""

from contextlib import suppress

import orjson
from pydantic import ValidationError

from hlas import errors, log, payloads
from hlas.api.widget.steps import attribute, bind
from hlas.http.answer import PRIVATE, Answer
from hlas.http.gate import READS, SESSION
from hlas.http.request import Request
from hlas.services import Services
from hlas.visitors import sessions
from hlas.visitors.origins import Origin
from hlas.visitors.sessions import NewSession, SessionAnswer
from hlas.visitors.tokens import Session


async def open_session(services: Services, request: Request) -> Answer:
    """A visitor's browser asks from an allowed domain and gets a conversation and its token.

    With `identity` it is the visitor's own conversation, on every device.
    """
    await services.gate.require_room(request, SESSION)
    try:
        opened, session = await _open(services, request)
    except errors.HlasError as error:
        if error.status < 500 and not isinstance(error, errors.RateLimited):
            log.warning("session_denied", reason=error.code, **_details(request, error))
            services.metrics.session(error.code)
        raise
    bind(request, session)
    log.info("session_created")
    services.metrics.session("created")
    return Answer(200, PRIVATE, orjson.dumps(opened))


def _details(request: Request, error: errors.HlasError) -> dict[str, str]:
    """For whoever has to fix it; the origin is spelled our way, never as it was sent."""
    details = {"why": error.reason} if isinstance(error, errors.InvalidIdentity) else {}
    with suppress(errors.InvalidOrigin):
        details["origin"] = str(_origin(request))
    return details


def _origin(request: Request) -> Origin:
    return sessions.request_origin(request.values(b"origin"), request.values(b"referer"))


async def _open(services: Services, request: Request) -> tuple[SessionAnswer, Session]:
    try:
        origin = _origin(request)
        host = await services.origins.active_host(origin)
    except (errors.InvalidOrigin, errors.DomainNotAllowed, errors.TenantInactive):
        await services.gate.consume(request, SESSION)
        raise
    request.context["tenant_id"] = host.tenant_id
    await services.gate.consume(request, SESSION, host.tenant_id)
    new = _new_session(await request.read())
    return await sessions.open_session(services.database, services.tokens, origin, new)


def _new_session(content: bytes) -> NewSession:
    if not content:
        return NewSession()
    try:
        return NewSession.model_validate(payloads.loads(content))
    except ValidationError as error:
        raise payloads.invalid(error) from None


async def refresh_session(services: Services, request: Request) -> Answer:
    """The same conversation, a new token; the old one may have expired a while ago."""
    await services.gate.consume(request, READS)
    window = services.settings.widget_session_refresh_hours * 3600
    longest = services.settings.widget_session_max_days * 86400
    origins = request.values(b"origin")
    try:
        token = sessions.bearer(request.values(b"authorization"))
        session = services.tokens.verify_for_refresh(token, window, longest)
    except errors.AuthenticationError as error:
        attribute(services, request, error)
        raise
    bind(request, session)
    # Browsers send it with every POST: a client without one is not a page, and gets no token.
    if not origins:
        raise errors.InvalidOrigin
    sessions.require_origin(session, origins)
    renewed, _ = await sessions.refresh(services.database, services.tokens, session)
    return Answer(200, PRIVATE, orjson.dumps(renewed))
