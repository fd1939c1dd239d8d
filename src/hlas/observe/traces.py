"""Optional OpenTelemetry traces: a span for each request, off unless an endpoint is set."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import hlas
from hlas import log
from hlas.http.asgi import Application, Message, Receive, Scope, Send, header_values
from hlas.limits.addresses import TrustedProxies
from hlas.settings import ConfigurationError, Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

Close = Callable[[], Awaitable[None]]


class TraceMiddleware:
    """Inside the one that gives the request its id, so that a trace and its log lines meet."""

    def __init__(self, app: Application, tracer: "Tracer", proxies: TrustedProxies) -> None:
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415  # an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415  # an extra
            TraceContextTextMapPropagator,
        )

        self.app = app
        self._tracer = tracer
        self._proxies = proxies
        self._kind = SpanKind.SERVER
        self._error = StatusCode.ERROR
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._tracer.start_as_current_span(
            scope["method"],
            context=self._parent(scope),
            kind=self._kind,
            # An exception's words may quote a visitor.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                await self.app(scope, receive, send_noting_status)
            finally:
                route = log.route_of(scope)
                span.update_name(f"{scope['method']} {route}")
                span.set_attributes(
                    {
                        "http.request.method": scope["method"],
                        "http.route": route,
                        "http.response.status_code": status,
                        "hlas.request_id": log.request_id(),
                    }
                )
                if status >= 500:
                    span.set_status(self._error)

    def _parent(self, scope: Scope) -> "Context | None":
        """A visitor must not choose our trace; a proxy that we trust may."""
        peer = scope["client"][0] if scope.get("client") else ""
        given = header_values(scope, b"traceparent")
        if len(given) != 1 or not self._proxies or not self._proxies.trust(peer):
            return None
        return self._propagator.extract({"traceparent": given[0]})


async def _nothing() -> None:
    """There is nothing to close."""


def install(app: Any, settings: Settings) -> Close:
    """Trace the application if an endpoint is set; the answer sends what is left and ends it."""
    endpoint = settings.otel_exporter_otlp_endpoint
    if not endpoint:
        return _nothing
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415  # an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # an extra
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # an extra
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  # an extra
    except ImportError:
        raise ConfigurationError(
            "OTEL_EXPORTER_OTLP_ENDPOINT: traces need an extra; install hlas[otel]"
        ) from None
    named = {"service.name": "hlas", "service.version": hlas.__version__}
    # Resource.create lets OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say otherwise.
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    app.add_middleware(
        TraceMiddleware, tracer=provider.get_tracer("hlas"), proxies=settings.trusted_proxies
    )

    async def close() -> None:
        await asyncio.to_thread(provider.shutdown)

    return close
