"""Optional OpenTelemetry traces: a span for each request, off unless an endpoint is set."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import hlas
from hlas.limits.addresses import TrustedProxies
from hlas.settings import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider


class Traced(Protocol):
    """The parts of a request that a span records."""

    id: str
    method: str
    route: str
    peer: str

    def values(self, name: bytes) -> Sequence[str]: ...


class Traces:
    """Sends a span of each request that is over, in the background."""

    def __init__(self, provider: "TracerProvider", proxies: TrustedProxies) -> None:
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415  # an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415  # an extra
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("hlas")
        self._proxies = proxies
        self._kind = SpanKind.SERVER
        self._error = StatusCode.ERROR
        self._propagator = TraceContextTextMapPropagator()

    def record(self, request: Traced, status: int, seconds: float) -> None:
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"{request.method} {request.route}",
            context=self._parent(request),
            kind=self._kind,
            start_time=ended - int(seconds * 1e9),
            attributes={
                "http.request.method": request.method,
                "http.route": request.route,
                "http.response.status_code": status,
                "hlas.request_id": request.id,
            },
        )
        if status >= 500:
            span.set_status(self._error)
        span.end(ended)

    async def close(self) -> None:
        """Send what is left."""
        await asyncio.to_thread(self._provider.shutdown)

    def _parent(self, request: Traced) -> "Context | None":
        """A visitor must not choose our trace; a proxy that we trust may."""
        given = request.values(b"traceparent")
        if len(given) != 1 or not self._proxies or not self._proxies.trust(request.peer):
            return None
        return self._propagator.extract({"traceparent": given[0]})


def make_traces(endpoint: str, proxies: TrustedProxies) -> Traces | None:
    """Traces to an OTLP endpoint; none where there is no endpoint."""
    if not endpoint:
        return None
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
    return Traces(provider, proxies)
