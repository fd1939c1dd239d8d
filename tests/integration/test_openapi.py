"""The API is what its OpenAPI document says."""

import asyncio
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as described

from conftest import make_settings
from factories import Live, Site
from hlas.app import create_app

METHODS = {"get", "post", "put", "patch", "delete"}


def document() -> dict[str, Any]:
    app = create_app(make_settings("postgresql://localhost/unused"))
    return app.openapi()


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if method in METHODS
    ]


def test_every_operation_is_described() -> None:
    """Edge case 42: every operation has a summary, its answers, and the error shape for errors."""
    found = operations()
    assert len(found) >= 9
    for method, path, operation in found:
        name = f"{method} {path}"
        assert operation["summary"], name
        for status, answer in operation["responses"].items():
            if status >= "400":
                schema = answer["content"]["application/json"]["schema"]
                assert schema["$ref"].endswith("/Problem"), (name, status)


def test_limited_routes() -> None:
    """Edge case 42: what can be limited or too large says so."""
    for method, path, operation in operations():
        if (method, path) in {("post", "/widget/session"), ("post", "/widget/messages")}:
            assert {"408", "413", "415", "422", "429", "503"} <= set(operation["responses"])


async def _fuzz(site: Site, path: str, examples: int) -> None:
    """Ask an operation with what its description allows and what it does not."""
    schema = schemathesis.openapi.from_dict(site.live.app.openapi())
    schema.config.update(base_url=site.live.url)
    headers = site.headers()

    def run() -> None:
        for operation in schema[path].values():

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def ask(case: Any) -> None:
                case.call_and_validate(
                    headers=headers,
                    checks=[
                        checks.not_a_server_error,
                        described.status_code_conformance,
                        described.content_type_conformance,
                        described.response_schema_conformance,
                    ],
                )

            ask()

    await asyncio.to_thread(run)


def paths() -> list[str]:
    return [path for path in document()["paths"] if path.startswith("/widget/")]


async def test_fuzz(site: Site) -> None:
    """Edge case 42: no 5xx, no undocumented status or shape, whatever the visitors' routes get."""
    for path in paths():
        await _fuzz(site, path, 15)


@pytest.mark.soak
async def test_fuzz_long(site: Site) -> None:
    """Edge case 42: the same for a long time."""
    for path in paths():
        await _fuzz(site, path, 1000)


async def test_document_is_served(live_server: Live) -> None:
    """The document and its page are served; unknown parts of it are not."""
    assert (await live_server.client.get("/openapi.json")).status_code == 200
    assert (await live_server.client.get("/docs")).status_code == 200
