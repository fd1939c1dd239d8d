"""Edge case 48: numbers of any length and shape, in every field of the console and of /admin.

Routes, parameters and forms come from the running application, so new ones are tested too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from fastapi.routing import iter_route_contexts

from administration import add_model, add_product, add_server, add_source, make_desk
from browsers import Browser, make_browser
from factories import Live, Site
from hlas.knowledge import entries, unanswered
from hlas.knowledge.entries import Entry
from hlas.store.db import Database
from hlas.tenants import tenants, visitor_keys
from hlas.visitors import identities

NINES = "9" * 5000
ZEROS = "0" * 5000 + "7"
THREES = "٣" * 300
VALUES = (NINES, ZEROS, "-1e5000", THREES, NINES + "/min", "\0")
DATES = (NINES, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", NINES + "-01-01")
IN_PATHS = (NINES, "-1e5000", THREES, "\0")
# As written in JSON, without quotes.
LITERALS = (NINES, "-" + NINES, "1e5000", "9223372036854775808")
TEXTS = (f'"{NINES}"', f'"{THREES}"')
NO_LIMITS = pytest.mark.settings(rate_limit_admin_key="off", rate_limit_admin_denied_ip="off")


@dataclass
class Form:
    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Forms(HTMLParser):
    """The forms of a page with the values of their fields."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[Form] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append(Form(values["method"], values["action"].partition("?")[0]))
        elif tag in {"input", "textarea", "select"} and "name" in values:
            self.found[-1].fields[values["name"]] = values.get("value", "")
        elif tag == "option" and "selected" in values:
            self.found[-1].fields[list(self.found[-1].fields)[-1]] = values["value"]


async def places_of(site: Site, operators: Database) -> dict[str, str]:
    tenant_id = UUID(site.tenant_id)
    entry = await entries.add(operators, tenant_id, Entry("Where?", "Here."))
    key = await visitor_keys.add(operators, tenant_id, identities.make_secret())
    return {
        "slug": site.slug,
        "conversation_id": site.conversation_id,
        "entry_id": str(entry.id),
        "kid": key.kid,
        "model": await add_model(operators),
        "name": await add_server(operators, site.tenant_id),
        "sku": await add_product(operators, site.tenant_id),
        "source_id": await add_source(operators, site.tenant_id),
        "question_id": await add_unanswered(site, operators),
        "rest": "nowhere",
    }


async def add_unanswered(site: Site, operators: Database) -> str:
    """A question without a good answer; its id in the console."""
    await site.send("Where is the whale?")
    await unanswered.record(operators, site.tenant_id, site.conversation_id, 1, "fallback")
    return f"{site.conversation_id}.1"


def fill(template: str, places: dict[str, str]) -> str:
    return re.sub(r"\{([^}:]+)[^}]*\}", lambda found: places[found[1]], template)


def odd_paths(template: str, places: dict[str, str]) -> Iterator[str]:
    """The path with each of its parts replaced by each value."""
    for name in re.findall(r"\{([^}:]+)", template):
        for value in IN_PATHS:
            yield fill(template, {**places, name: quote(value, safe="")})


def console_routes(live: Live, method: str) -> dict[str, set[str]]:
    """Path templates, each with the query parameters that its route declares."""
    found: dict[str, set[str]] = {}
    for route in iter_route_contexts(live.app.routes):
        if (route.path or "").startswith("/console") and method in (route.methods or {"GET"}):
            dependant: Any = route.dependant
            found[str(route.path)] = {one.name for one in dependant.query_params}
    return found


async def all_forms(browser: Browser, paths: list[str]) -> dict[tuple[str, str], Form]:
    """Every form of these pages, by method and address."""
    found: dict[tuple[str, str], Form] = {}
    for path in paths:
        page = await browser.client.get(path)
        if page.headers.get("content-type", "").startswith("text/html"):
            found |= {(form.method, form.action): form for form in Forms(page.text).found}
    return found


@NO_LIMITS
async def test_forms(site: Site, operators: Database) -> None:
    """Edge case 48: every field of every console form is refused with a message, never a 500."""
    browser = await make_browser(site.live, operators)
    places = await places_of(site, operators)
    # A stream has no form, and does not end.
    routes = console_routes(site.live, "GET")
    pages = [fill(path, places) for path in routes if not path.endswith("/stream")]
    forms = await all_forms(browser, pages)
    templates = console_routes(site.live, "POST")
    # The form that saves an import is shown with its preview.
    actions = {fill(path, places) for path in templates if not path.endswith("/import")}
    assert actions <= {action for method, action in forms if method == "post"}
    tried = 0
    for (method, action), form in forms.items():
        for name in form.fields:
            for value in VALUES:
                if method == "get":
                    answer = await browser.client.get(action, params={**form.fields, name: value})
                else:
                    answer = await browser.client.post(action, data={**form.fields, name: value})
                tried += 1
                assert answer.status_code < 500, (method, action, name, value[:20])
    assert tried >= 200
    for template in templates:
        for path in odd_paths(template, places):
            answer = await browser.client.post(path, data={"form_token": browser.token})
            assert 400 <= answer.status_code < 500, path[:80]


@NO_LIMITS
async def test_console_queries(site: Site, operators: Database) -> None:
    """Edge case 48: every part of every console path and every declared parameter."""
    browser = await make_browser(site.live, operators)
    places = await places_of(site, operators)
    for template, parameters in console_routes(site.live, "GET").items():
        path = fill(template, places)
        for name in parameters | {"before"}:
            for value in VALUES:
                # Streams do not end: the status is enough.
                async with browser.client.stream("GET", path, params={name: value}) as answer:
                    assert answer.status_code < 500, (path, name, value[:20])
        for odd in odd_paths(template, places):
            async with browser.client.stream("GET", odd) as answer:
                assert 400 <= answer.status_code < 500, odd[:80]


@NO_LIMITS
async def test_a_form_says_what_is_wrong_with_a_number(site: Site, operators: Database) -> None:
    """Edge case 48: the page is shown again with an error at the field; nothing has changed."""
    browser = await make_browser(site.live, operators)
    tenant = f"/tenants/{site.slug}"
    before = await tenants.find_tenant(operators, site.slug)
    for value in (NINES, ZEROS, "-" + NINES, "+7", "1e5000", "1_000", THREES, "²", "NaN"):
        days = await browser.post(tenant, name="Shop", retention_days=value)
        layer = await browser.post(f"{tenant}/looks", z_index=value)
        for answer in (days, layer):
            assert answer.status_code == 422, value[:20]
            assert "Write a whole number." in answer.text
    assert await tenants.find_tenant(operators, site.slug) == before


def holes(schema: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    """JSON with a placeholder for the number, for each property and nested property."""
    schema = components[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    for name, inner in schema.get("properties", {}).items():
        yield f'{{"{name}": %s}}'
        for one in holes(inner, components):
            yield f'{{"{name}": {one}}}'
    if schema.get("additionalProperties"):
        yield '{"session_tenant": %s}'


@NO_LIMITS
async def test_admin(site: Site, operators: Database) -> None:
    """Edge case 48: every parameter, part of a path and JSON property below /admin."""
    desk = await make_desk(site.live, operators)
    places = await places_of(site, operators)
    document = site.live.app.openapi()
    components = document["components"]["schemas"]
    routes = [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        if path.startswith("/admin")
        for method, operation in operations.items()
    ]
    assert len(routes) >= 20
    json = {"If-Match": "*", "Content-Type": "application/json"}
    for method, template, operation in routes:
        path = fill(template, places).removeprefix("/admin")
        for odd in odd_paths(template, places):
            answer = await desk.ask(method, odd.removeprefix("/admin"), headers=json)
            assert 400 <= answer.status_code < 500, (method, odd[:80])
        for parameter in operation.get("parameters", ()):
            for value in VALUES + DATES if parameter["in"] == "query" else ():
                answer = await desk.ask(method, path, params={parameter["name"]: value})
                assert answer.status_code < 500, (method, path, parameter["name"], value[:20])
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for whole in ("%s", *holes(schema, components)):
                for value in LITERALS:
                    answer = await desk.ask(method, path, headers=json, content=whole % value)
                    assert answer.status_code == 422, (method, path, whole, value[:20])
                for value in TEXTS:
                    answer = await desk.ask(method, path, headers=json, content=whole % value)
                    assert answer.status_code < 500, (method, path, whole, value[:20])


@NO_LIMITS
async def test_admin_headers(site: Site, operators: Database) -> None:
    """Edge case 48: If-Match, Authorization and X-Forwarded-For with thousands of digits."""
    desk = await make_desk(site.live, operators)
    for value in (NINES, f'"{NINES}"', "-" + NINES):
        changed = await desk.ask("PATCH", f"/tenants/{site.slug}", tag=value, json={"name": "X"})
        assert changed.status_code == 412
        bearer = {"Authorization": f"Bearer {value}"}
        assert (await desk.ask("GET", "/me", headers=bearer)).status_code == 401
        assert (await desk.ask("GET", "/me", headers={"X-Forwarded-For": value})).status_code == 200


@NO_LIMITS
async def test_numbers_of_admin_are_refused(site: Site, operators: Database) -> None:
    """Edge case 48: where a number is expected, the error names its location."""
    desk = await make_desk(site.live, operators)
    messages = f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages"
    for value in (NINES, "-" + NINES, "1e5000", THREES):
        for path, name in (("/tenants", "limit"), ("/audit", "limit"), (messages, "cursor")):
            answer = await desk.ask("GET", path, params={name: value})
            assert answer.status_code == 422, (path, name)
            assert answer.json()["detail"] == "invalid_request"
            assert answer.json()["errors"][0]["loc"] == ["query", name]
