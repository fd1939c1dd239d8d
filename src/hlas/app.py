"""The composition root: settings in, application out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

import hlas
from hlas import log
from hlas import settings as configuration
from hlas.api import admin, assets, console, errors, health, reference, widget
from hlas.api.direct import DirectRoutes
from hlas.api.express import Express
from hlas.http.body import BodyMiddleware
from hlas.http.connections import Connections
from hlas.http.cors import CorsMiddleware, Readers
from hlas.http.gate import MESSAGES, REPLIES, SESSION, AddressLimitMiddleware
from hlas.http.paths import PathMiddleware
from hlas.http.server import settle
from hlas.log import RequestMiddleware
from hlas.observe import traces
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


def create_app(settings: Settings, database_url: str | None = None) -> FastAPI:
    """The whole service; `database_url` stands in for the settings' when it is embedded."""
    services = Services(settings, database_url or settings.database_url)
    readers = Readers(lambda: services.origins, services.tokens)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with services.open():
            state: dict[str, Any] = {
                "metrics": services.metrics,
                "connections": Connections(settings, services.metrics),
            }
            # A trace has a span for each of the application's steps, so nothing may skip them.
            if not settings.otel_exporter_otlp_endpoint:
                state["express"] = Express(services, readers)
            yield state
        await close_traces()
        log.flush()

    app = FastAPI(
        title="Hlas",
        version=hlas.__version__,
        summary="Chat and voice for websites: retry-safe messages, exact limits, isolated tenants.",
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # We have logs and metrics of our own; asking whether its are on cost 2 % a request.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.services = services
    for router in ROUTERS:
        app.include_router(router)
    errors.install(app, services.metrics)
    fixed = frozenset(
        route.path
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and "{" not in route.path
    )
    # The last one added is the outermost: a request passes them from the bottom up.
    # What visitors call most skips the router, which still documents it and answers other methods.
    app.add_middleware(
        DirectRoutes,
        endpoints={
            ("POST", MESSAGES): widget.create_message,
            ("POST", REPLIES): widget.create_reply,
            ("POST", SESSION): widget.open_session,
        },
    )
    app.add_middleware(BodyMiddleware, largest=settings.max_json_body_bytes)
    app.add_middleware(PathMiddleware)
    app.add_middleware(errors.ErrorBoundary, metrics=services.metrics)
    app.add_middleware(CorsMiddleware, readers=readers)
    app.add_middleware(
        AddressLimitMiddleware,
        gate=services.gate,
        metrics=services.metrics,
        cors=readers.headers,
    )
    close_traces = traces.install(app, settings)
    app.add_middleware(
        RequestMiddleware, metrics=services.metrics, routes=fixed, proxies=settings.trusted_proxies
    )
    return app


def from_environment() -> FastAPI:
    """For worker processes: everything they need is in the environment."""
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
