"""Traces reach a collector, with the documented attributes and without visitors' data.

Fails with these defects planted: any visitor's traceparent trusted, the path instead of the
route.
"""

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from factories import make_settings, make_site, serve_app
from hlas.observe.traces import make_traces
from hlas.settings import ConfigurationError, Settings
from hlas.store.db import Database

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


class Collector:
    """Stores the spans that it receives."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.url = ""

    def spans(self) -> list[Any]:
        found = []
        for body in self.bodies:
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
        return found


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces" and "gzip" not in self.headers.get("Content-Encoding", ""):
                kept.bodies.append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield kept
    server.shutdown()
    thread.join()
    server.server_close()


async def visit(settings: Settings, operators: Database, logs: Any) -> list[dict[str, Any]]:
    """A visitor sends two messages, one of them refused; returns the log."""
    async with serve_app(settings, logs) as live:
        site = await make_site(live, operators)
        await site.send("a very private text", metadata={"email": "jana@example.com"})
        await live.client.post("/widget/messages", json={"text": "no token"})
        await live.client.get("/some/path/of/mine?secret=1", headers=PARENT)
        return live.events("request")


async def test_spans(
    collector: Collector, database_url: str, operators: Database, logs: Any
) -> None:
    """One span per request, with the request id of its log lines, exported before shutdown."""
    settings = make_settings(database_url, otel_exporter_otlp_endpoint=collector.url)
    logged = await visit(settings, operators, logs)
    spans = collector.spans()
    assert sorted(span.name for span in spans) == [
        "GET unmatched",
        "POST /widget/messages",
        "POST /widget/messages",
        "POST /widget/session",
    ]
    assert {attributes(span)["hlas.request_id"] for span in spans} == {
        line["request_id"] for line in logged
    }
    statuses = sorted(attributes(span)["http.response.status_code"] for span in spans)
    assert statuses == [200, 200, 401, 404]
    sent = b"".join(collector.bodies)
    for telling in (b"private", b"jana", b"secret", b"/some/path", b"Bearer", b"127.0.0.1"):
        assert telling not in sent
    # The visitor's trace id is not used.
    assert TRACE not in {span.trace_id.hex() for span in spans}


async def test_a_trusted_proxy_leads_the_trace(
    collector: Collector, database_url: str, operators: Database, logs: Any
) -> None:
    """Behind a trusted proxy a request belongs to the proxy's trace."""
    settings = make_settings(
        database_url,
        otel_exporter_otlp_endpoint=f"{collector.url}/",
        trusted_proxies="127.0.0.1",
    )
    await visit(settings, operators, logs)
    ids = {span.name: span.trace_id.hex() for span in collector.spans()}
    assert ids["GET unmatched"] == TRACE
    assert ids["POST /widget/session"] != TRACE


async def test_off_by_default(settings: Settings) -> None:
    """Without an endpoint nothing is added to the application, and nothing has to be closed."""
    assert make_traces(settings.otel_exporter_otlp_endpoint, settings.trusted_proxies) is None


async def test_missing_extra(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """An endpoint without the extra stops the start with one line that names both."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    settings = make_settings(database_url, otel_exporter_otlp_endpoint="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT.*hlas\[otel\]"):
        make_traces(settings.otel_exporter_otlp_endpoint, settings.trusted_proxies)
