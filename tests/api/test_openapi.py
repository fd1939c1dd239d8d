"""The API matches its OpenAPI document."""

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.specs.openapi import checks as described

from administration import add_model, make_desk
from factories import Live, Site, make_settings
from hlas.app import create_app
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.store.db import Database

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
    """Edge case 42: every operation has a summary, its responses and the error schema."""
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
    """Edge case 42: routes for sessions and messages document their limits and size errors."""
    for method, path, operation in operations():
        if (method, path) in {("post", "/widget/session"), ("post", "/widget/messages")}:
            assert {"408", "413", "415", "422", "429", "503"} <= set(operation["responses"])


@dataclass(frozen=True)
class Asker:
    """The caller, with ids that random input would never hit."""

    live: Live
    headers: dict[str, str]
    known: dict[str, str]


async def _fuzz(asker: Asker, path: str, examples: int) -> None:
    """Call an operation with inputs that its description allows and that it does not."""
    schema = schemathesis.openapi.from_dict(asker.live.app.openapi())
    schema.config.update(base_url=asker.live.url)
    # A stream has no end: the rest of it would be awaited for 10 s.
    schema.config.max_stream_events = 1

    def run() -> None:
        for method, operation in schema[path].items():
            known = {} if (method, path) in FAREWELLS else asker.known
            _ask_all(operation, asker.headers, known, examples)

    await asyncio.to_thread(run)


def _ask_all(operation: Any, own: dict[str, str], known: dict[str, str], examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), at_home=st.booleans())
    def ask(case: Any, *, at_home: bool) -> None:
        headers = own
        if at_home:
            places = case.path_parameters or {}
            places.update({name: known[name] for name in places if name in known})
            headers = {**own, "If-Match": "*"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    ask()


CHECKS = [
    checks.not_a_server_error,
    described.status_code_conformance,
    described.content_type_conformance,
    described.response_schema_conformance,
]
# These would remove what the other operations need.
FAREWELLS = {("delete", "/admin/tenants/{slug}"), ("delete", "/admin/models/{model}")}


def paths(prefix: str) -> list[str]:
    return [path for path in document()["paths"] if path.startswith(prefix)]


async def _fuzz_widget(site: Site, examples: int) -> None:
    asker = Asker(site.live, site.headers(), {"conversation_id": site.conversation_id})
    for path in paths("/widget/"):
        await _fuzz(asker, path, examples)


async def _fuzz_admin(site: Site, operators: Database, examples: int) -> None:
    """As an operator, and as the administrator of one tenant."""
    await site.send("a message to be found")
    entry = await entries.add(operators, UUID(site.tenant_id), Entry("When?", "Now.", (), "en"))
    known = {
        "slug": site.slug,
        "conversation_id": site.conversation_id,
        "entry_id": str(entry.id),
        "model": await add_model(operators),
    }
    for slug in (None, site.slug):
        desk = await make_desk(site.live, operators, slug)
        asker = Asker(site.live, {"Authorization": f"Bearer {desk.key}"}, known)
        for path in paths("/admin/"):
            await _fuzz(asker, path, examples)


UNLIMITED = {"rate_limit_admin_key": "off", "rate_limit_admin_denied_ip": "off"}


async def test_fuzz(site: Site) -> None:
    """Edge case 42: the visitors' routes return no 5xx and no undocumented status or body."""
    await _fuzz_widget(site, 15)


@pytest.mark.settings(**UNLIMITED)
async def test_fuzz_admin(site: Site, operators: Database) -> None:
    """Edge case 42: the same for the administrators' routes, with both kinds of keys."""
    await _fuzz_admin(site, operators, 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_fuzz_long(site: Site) -> None:
    """Edge case 42: the same for a long time."""
    await _fuzz_widget(site, 1000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.settings(**UNLIMITED)
async def test_fuzz_admin_long(site: Site, operators: Database) -> None:
    """Edge case 42: the same for a long time."""
    await _fuzz_admin(site, operators, 100)


async def test_document_is_served(live_server: Live) -> None:
    """The document and its page are served; unknown parts of it are not."""
    assert (await live_server.client.get("/openapi.json")).status_code == 200
    assert (await live_server.client.get("/docs")).status_code == 200
