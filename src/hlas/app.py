"""The composition root: settings in, application out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

import hlas
from hlas import errors, log
from hlas import settings as configuration
from hlas.api import admin, assets, console, health, reference, widget
from hlas.http.answer import Finish
from hlas.http.asgi import Driver
from hlas.http.connections import Connections
from hlas.http.cors import Readers
from hlas.http.lane import Lane
from hlas.http.server import settle
from hlas.observe.traces import make_traces
from hlas.services import Services
from hlas.settings import Settings
from hlas.store import embedded

ROUTERS = (
    widget.router,
    admin.router,
    console.router,
    assets.router,
    health.router,
    reference.router,
)
# Errors of the framework itself.
_HTTP: dict[int, type[errors.HlasError]] = {
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    413: errors.PayloadTooLarge,
    415: errors.UnsupportedMediaType,
}


def create_app(settings: Settings, database_url: str | None = None) -> FastAPI:
    """Create the service. `database_url` replaces that of the settings if it is embedded."""
    services = Services(settings, database_url or settings.database_url)
    readers = Readers(lambda: services.origins, services.tokens)
    traces = make_traces(settings.otel_exporter_otlp_endpoint, settings.trusted_proxies)
    finish = Finish(services.metrics, readers, settings.trusted_proxies, traces)
    largest = settings.max_json_body_bytes

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
        async with services.open():
            yield {
                "lane": Lane(widget.lines(services), finish, largest),
                "connections": Connections(settings, services.metrics),
                "end_streams": services.live.end_streams,
            }
        if traces is not None:
            await traces.close()
        log.flush()

    app = FastAPI(
        title="Hlas",
        version=hlas.__version__,
        summary="Chat for websites: retry-safe messages, exact limits, isolated tenants.",
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # We have our own logs and metrics; checking whether FastAPI's are on cost 2 % a request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        exception_handlers={HTTPException: _translate, RequestValidationError: _translate},
    )
    app.state.services = services
    app.state.finish = finish
    for router in ROUTERS:
        app.include_router(router)
    fixed = frozenset(
        route.path
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "{" not in route.path
    )
    app.add_middleware(Driver, finish=finish, readers=readers, routes=fixed, largest=largest)
    return app


async def _translate(_: Request, error: Exception) -> Response:
    """Turn the framework's errors into ours, which the driver renders like any other."""
    if isinstance(error, RequestValidationError):
        raise errors.InvalidRequest(
            [{"loc": list(problem["loc"]), "type": problem["type"]} for problem in error.errors()]
        ) from None
    assert isinstance(error, HTTPException)
    translated = _HTTP.get(error.status_code, errors.HlasError)()
    translated.headers |= dict(error.headers or {})
    raise translated from None


def from_environment() -> FastAPI:
    """Create the application in a worker process, from the environment."""
    settings = configuration.load()
    log.configure(settings.log_level, settings.log_format)
    app = create_app(settings, _embedded_url(settings) if settings.embedded else None)
    settle()
    return app


def _embedded_url(settings: Settings) -> str:
    server = embedded.attach(settings.data_dir)
    if server is None:
        raise embedded.EmbeddedPostgresError("the embedded database is not running")
    return server.url
