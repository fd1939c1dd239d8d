"""Every exception, wherever it comes from, through the one handler; and one log event for each."""

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from hlas import errors, log
from hlas.http.asgi import Application, Message, Receive, Scope, Send, respond
from hlas.http.gate import note_blocked
from hlas.observe.metrics import Metrics

_HTTP: dict[int, type[errors.HlasError]] = {
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    413: errors.PayloadTooLarge,
    415: errors.UnsupportedMediaType,
}


class ErrorBoundary:
    """Inside CORS and the request id, so that even a crash is answered with both."""

    def __init__(self, app: Application, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            report(error, log.route_of(scope), self.metrics)
            if started:
                raise
            status, headers, body = errors.render(error, log.request_id())
            await respond(send, status, headers, body)


def install(app: FastAPI, metrics: Metrics) -> None:
    """Send what the framework would answer by itself the same way."""

    def handle(request: Request, error: Exception) -> Response:
        ours = _translate(error)
        report(ours, log.route_of(request.scope), metrics)
        status, headers, body = errors.render(ours, log.request_id())
        response = Response(body, status)
        response.raw_headers = [*headers, (b"content-length", str(len(body)).encode())]
        return response

    for kind in (errors.HlasError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, handle)


def _translate(error: Exception) -> errors.HlasError:
    if isinstance(error, errors.HlasError):
        return error
    if isinstance(error, RequestValidationError):
        found: list[dict[str, Any]] = [
            {"loc": list(problem["loc"]), "type": problem["type"]} for problem in error.errors()
        ]
        return errors.InvalidRequest(found)
    status = error.status_code if isinstance(error, HTTPException) else 500
    translated = _HTTP.get(status, errors.HlasError)()
    if isinstance(error, HTTPException) and error.headers:
        translated.headers |= dict(error.headers)
    return translated


def report(error: Exception, route: str, metrics: Metrics) -> None:
    """The one log event and count of a refusal."""
    match error:
        case errors.RateLimited():
            note_blocked(metrics, error.limit_scope, route)
        case errors.PayloadTooLarge() | errors.TextTooLong():
            log.warning("blocked", reason=error.code, scope="request", route=route)
            metrics.blocked(error.code, "request", route)
        case (
            errors.AuthenticationError()
            | errors.ConversationNotFound()
            | (errors.ConversationMismatch())
            | errors.OriginMismatch()
            | errors.TenantMismatch()
        ):
            log.warning("auth_denied", reason=error.code, route=route)
            metrics.auth_denied(error.code, getattr(error, "tenant_id", None))
        case errors.HlasError() if error.status < 500:
            log.debug("refused", error_code=error.code, route=route)
        case errors.HlasError():
            log.error("error", error_code=error.code, route=route)
        case _:
            # The kind and the place, never the message: it may quote what a visitor wrote.
            log.error(
                "error",
                error_code="internal_error",
                error=type(error).__name__,
                where=_where(error),
                route=route,
            )


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    code = trace.tb_frame.f_code
    return f"{code.co_name}:{trace.tb_lineno}"
