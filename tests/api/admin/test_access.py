"""Authentication at /admin: a valid key is required, and gives access to its tenants only."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest
from fastapi.routing import iter_route_contexts

from administration import (
    Desk,
    add_model,
    add_product,
    add_server,
    add_source,
    dump_state,
    make_desk,
)
from factories import Live, Site, make_site
from hlas.api.admin import access
from hlas.errors import InvalidAdminKey
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.operators import administrators
from hlas.store.db import Confined, Database
from hlas.tenants import visitor_keys
from hlas.tenants.audit import SERVICE
from hlas.visitors import identities

NOWHERE = str(uuid4())
FREE_MODEL = {"name": "x", "base_url": "http://127.0.0.1:1", "model": "x", "is_free": True}
NEW_SOURCE = {"name": "faq.md", "content": "IyMgcQphCg=="}
QUESTIONS = [{"conversation_id": NOWHERE, "seq": 1}]
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/admin/tenants"): {"name": "X", "slug": "x"},
    ("PATCH", "/admin/tenants/{slug}"): {"name": "taken over"},
    ("POST", "/admin/tenants/{slug}/domains"): {"domain": "evil.example"},
    ("PATCH", "/admin/tenants/{slug}/agent"): {"instructions": "taken over"},
    ("POST", "/admin/models"): FREE_MODEL,
    ("POST", "/admin/tenants/{slug}/mcp"): {"name": "x", "url": "https://mcp.example"},
    ("PUT", "/admin/tenants/{slug}/products"): {"products": [{"sku": "x", "name": "x"}]},
    ("PATCH", "/admin/models/{model}"): {"model": "taken over"},
    ("POST", "/admin/tenants/{slug}/visitor-keys"): {},
    ("POST", "/admin/tenants/{slug}/knowledge"): {"question": "q", "answer": "a"},
    ("PUT", "/admin/tenants/{slug}/knowledge/{entry_id}"): {"question": "q", "answer": "a"},
    ("POST", "/admin/tenants/{slug}/knowledge/preview"): NEW_SOURCE,
    ("POST", "/admin/tenants/{slug}/knowledge/import"): NEW_SOURCE,
    ("POST", "/admin/tenants/{slug}/unanswered/dismiss"): {"questions": QUESTIONS},
    ("POST", "/admin/tenants/{slug}/unanswered/answer"): {
        "questions": QUESTIONS,
        "entry": {"question": "q", "answer": "a"},
    },
    ("POST", "/admin/tenants/{slug}/unanswered/wordings"): {
        "questions": QUESTIONS,
        "entry_id": NOWHERE,
        "wordings": ["w"],
    },
    ("POST", "/admin/tenants/{slug}/conversations/{conversation_id}/messages"): {"text": "t"},
    ("PUT", "/admin/tenants/{slug}/conversations/{conversation_id}/handler"): {"handler": "human"},
}
OPEN_TO_ALL_KEYS = {"/admin/me", "/admin/tenants", "/admin/audit"}


def admin_routes(live: Live) -> Iterator[tuple[str, str, Any]]:
    """Every route of the application below /admin, documented or not."""
    for route in iter_route_contexts(live.app.routes):
        if (route.path or "").startswith("/admin"):
            for method in sorted(route.methods or {"GET"}):
                yield method, str(route.path), route


async def ask(
    live: Live, method: str, template: str, places: dict[str, str], key: str | None
) -> tuple[int, str]:
    path = template.replace(":path}", "}").format(**places)
    headers = {"If-Match": "*"} | ({} if key is None else {"Authorization": f"Bearer {key}"})
    query = (
        {"domain": "https://evil.example"} if (method, path[-8:]) == ("DELETE", "/domains") else {}
    )
    answer = await live.client.request(
        method, path, headers=headers, params=query, json=BODIES.get((method, template))
    )
    return answer.status_code, answer.json()["detail"] if answer.status_code >= 400 else ""


async def places_of(site: Site, operators: Database) -> dict[str, str]:
    tenant_id = UUID(site.tenant_id)
    added = await entries.add(operators, tenant_id, Entry("Where?", "Here."))
    key = await visitor_keys.add(operators, tenant_id, identities.make_secret())
    return {
        "slug": site.slug,
        "conversation_id": site.conversation_id,
        "entry_id": str(added.id),
        "kid": key.kid,
        "model": await add_model(operators),
        "name": await add_server(operators, site.tenant_id),
        "sku": await add_product(operators, site.tenant_id),
        "source_id": await add_source(operators, site.tenant_id),
    }


def test_every_route_asks_for_an_administrator(live_server: Live) -> None:
    """Every route below /admin has the dependency that authenticates."""
    routes = list(admin_routes(live_server))
    assert len(routes) >= 15
    for method, path, route in routes:
        calls = [dependency.call for dependency in route.dependant.dependencies]
        assert access.require_administrator in calls, (method, path)


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_no_route_without_a_key_that_stands(
    live_server: Live, site: Site, operators: Database
) -> None:
    """Edge case 36: no key, a visitor's token, an unknown, altered or revoked key: 401."""
    places = await places_of(site, operators)
    revoked = await make_desk(live_server, operators)
    await administrators.revoke(operators, revoked.prefix)
    good = await make_desk(live_server, operators)
    altered = good.key[:-1] + ("a" if good.key[-1] != "a" else "b")
    before = await dump_state(operators)
    for method, path, _ in admin_routes(live_server):
        for key, code in (
            (None, "missing_authorization"),
            (site.session["token"], "invalid_admin_key"),
            ("hlas_" + "a" * 50, "invalid_admin_key"),
            (altered, "invalid_admin_key"),
            (revoked.key, "invalid_admin_key"),
        ):
            assert await ask(live_server, method, path, places, key) == (401, code), (method, path)
    assert await dump_state(operators) == before


async def test_a_tenants_key_reaches_that_tenant_alone(
    live_server: Live, operators: Database
) -> None:
    """Edge case 36: another tenant is refused like one that does not exist; nothing changes."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    await other.send("a secret of the other shop")
    desk = await make_desk(live_server, operators, own.slug)
    places = await places_of(other, operators)
    missing = {
        "slug": "no-such",
        "conversation_id": NOWHERE,
        "entry_id": NOWHERE,
        "kid": "0" * 16,
        "model": "no-such",
        "name": "no_such",
        "sku": "no-such",
        "source_id": NOWHERE,
    }
    crossed = {**places, "slug": own.slug}
    before = await dump_state(operators)
    for method, path, _ in admin_routes(live_server):
        if path in OPEN_TO_ALL_KEYS and method == "GET":
            continue
        found = await ask(live_server, method, path, places, desk.key)
        assert found[0] in {403, 404}, (method, path, found)
        assert found == await ask(live_server, method, path, missing, desk.key), (method, path)
        if any(
            place in path
            for place in ("{conversation_id}", "{entry_id}", "{kid}", "{name}", "{sku")
        ):
            assert (await ask(live_server, method, path, crossed, desk.key))[0] == 404, path
    assert await dump_state(operators) == before


async def test_a_tenants_key_lists_its_own(live_server: Live, operators: Database) -> None:
    """Lists without a tenant contain only the key's tenant and its audit."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    desk = await make_desk(live_server, operators, own.slug)
    listed = await desk.get("/tenants")
    assert [one["slug"] for one in listed["tenants"]] == [own.slug]
    events = (await desk.get("/audit"))["events"]
    assert {event["tenant"] for event in events} == {own.slug}
    assert {event["action"] for event in events} == {"tenant.add", "admin_key.add"}
    assert (await desk.ask("GET", "/audit", params={"tenant": other.slug})).status_code == 404
    me = await desk.get("/me")
    assert me == {"name": "Ada", "role": "tenant", "prefix": desk.prefix, "tenant": own.slug}


async def test_the_database_holds_a_tenants_administrator(
    live_server: Live, operators: Database
) -> None:
    """Edge case 37: a tenant's administrator sees one tenant even if a query forgets it."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    await other.send("theirs")
    services = live_server.app.state.services
    _, key = await administrators.add(operators, "Ada", own.slug)
    confined = access.reach(services, await administrators.verify(operators, key))
    tables = ("tenants", "tenant_domains", "conversations", "messages", "knowledge", "events")
    for table in (*tables, "visitor_keys", "incidents"):
        column = "id" if table == "tenants" else "tenant_id"
        rows = await confined.all(f"select distinct {column}::text as tenant from {table}")
        assert {row["tenant"] for row in rows} <= {own.tenant_id}, table
    changed = await confined.execute("update tenants set name = 'taken over'")
    assert changed == "UPDATE 1"
    for forbidden in (
        "update tenants set limits = '{}'",
        "update tenants set is_active = true",
        "delete from tenants",
        "insert into tenant_domains select tenant_id, 'x', null, 'x', 1, false from tenant_domains",
        "delete from messages",
        "update messages set content = ''",
        "delete from events",
        "update events set actor = 'nobody'",
        "select * from administrators",
        "select material from visitor_keys",
        "update visitor_keys set material = ''",
    ):
        with pytest.raises(Exception, match="permission denied"):
            await confined.execute(forbidden)
    # Without a tenant no row is visible.
    assert await services.tenant_admins.all("select * from tenants") == []


async def test_the_audit_cannot_be_edited(operators: Database) -> None:
    """Not even an operator's connection can change or delete audit events."""
    for statement in ("delete from events", "update events set actor = 'nobody'"):
        with pytest.raises(Exception, match="permission denied"):
            await operators.execute(statement)


async def test_a_key_is_shown_once_and_kept_hashed(operators: Database) -> None:
    """Neither the table, the list nor the audit contains any part of the secret."""
    added, key = await administrators.add(operators, "Ada")
    secret = key.removeprefix(added.prefix)
    assert len(secret) == 40
    stored = await operators.all("select a::text as text from administrators a")
    stored += await operators.all("select e::text as text from events e")
    assert len(stored) == 2
    assert all(secret not in row["text"] for row in stored)
    assert secret not in str(await administrators.list_keys(operators))


async def test_a_key_notes_when_it_was_used(live_server: Live, operators: Database) -> None:
    """The list shows when a key was last used; the time is written at most once a minute."""
    desk = await make_desk(live_server, operators)
    assert (await administrators.list_keys(operators))[0].last_used_at is None
    await desk.get("/me")
    first = (await administrators.list_keys(operators))[0].last_used_at
    assert first is not None
    await desk.get("/me")
    assert (await administrators.list_keys(operators))[0].last_used_at == first


async def test_a_key_ends_with_its_tenant(live_server: Live, operators: Database) -> None:
    """After a tenant is removed its keys are invalid, and the removal is in the audit."""
    site = await make_site(live_server, operators)
    desk = await make_desk(live_server, operators, site.slug)
    operator = await make_desk(live_server, operators)
    gone = await operator.ask("DELETE", f"/tenants/{site.slug}", tag="*")
    assert gone.status_code == 204
    assert (await desk.ask("GET", "/me")).status_code == 401
    events = (await operator.get("/audit", tenant=site.slug))["events"]
    assert [event["action"] for event in events] == ["tenant.remove", "admin_key.add", "tenant.add"]
    assert events[0]["before"]["domains"] == [site.origin.removeprefix("https://")]


async def test_an_operators_key_belongs_to_no_tenant(operators: Database) -> None:
    """Its events have no tenant, and the schema refuses an operator's key with a tenant."""
    await administrators.add(operators, "Ada")
    row = await operators.one("select tenant_id, action from events")
    assert row is not None
    assert (str(row["tenant_id"]), row["action"]) == (str(SERVICE), "admin_key.add")
    with pytest.raises(Exception, match="ck_administrators__reach"):
        await operators.execute("update administrators set role = 'tenant'")


async def test_no_website_may_use_a_key(live_server: Live, site: Site, operators: Database) -> None:
    """Preflights are refused and responses have no CORS headers, also for a tenant's origin."""
    desk = await make_desk(live_server, operators)
    preflight = await live_server.client.options(
        "/admin/tenants", headers={"Origin": site.origin, "Access-Control-Request-Method": "GET"}
    )
    assert preflight.status_code == 403
    answer = await desk.ask("GET", "/tenants", headers={"Origin": site.origin})
    assert answer.status_code == 200
    for headers in (preflight.headers, answer.headers):
        assert not [name for name in headers if name.startswith("access-control")]
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.settings(rate_limit_admin_denied_ip="3/min")
async def test_refused_keys_are_limited_by_address(live_server: Live, operators: Database) -> None:
    """Edge case 53: guessing is limited by address; a valid key still works from there."""
    desk = await make_desk(live_server, operators)
    for _ in range(5):
        await desk.get("/me")
    bad = Desk(live_server, "hlas_" + "a" * 50, "")
    statuses = [(await bad.ask("GET", "/me")).status_code for _ in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert (await desk.ask("GET", "/me")).status_code == 200
    assert (await live_server.client.get("/admin/me")).status_code == 429
    blocked = live_server.events("blocked")
    assert [(one["scope"], one["route"]) for one in blocked] == [("ip", "/admin/me")] * 3
    await administrators.revoke(operators, desk.prefix)
    assert (await desk.ask("GET", "/me")).status_code == 429


@pytest.mark.settings(rate_limit_admin_key="3/min")
async def test_each_key_has_a_limit(live_server: Live, operators: Database) -> None:
    """The limit of one key does not affect other keys."""
    first, second = [await make_desk(live_server, operators) for _ in range(2)]
    statuses = [(await first.ask("GET", "/me")).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    refused = await first.ask("GET", "/me")
    assert int(refused.headers["Retry-After"]) >= 1
    assert (await second.ask("GET", "/me")).status_code == 200


async def test_nothing_of_a_key_or_message_is_logged(
    live_server: Live, site: Site, operators: Database
) -> None:
    """Edge case 41: keys, names, texts and search words are not logged."""
    desk = await make_desk(live_server, operators)
    await site.send("tell nobody about the hedgehog")
    await desk.get(f"/tenants/{site.slug}/conversations", text="hedgehog")
    await desk.get(f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages")
    await desk.ask("PATCH", f"/tenants/{site.slug}", tag="*", json={"name": "Porcupine"})
    lines = str(live_server.events())
    assert live_server.events("request")[-1]["administrator_id"]
    for secret in (desk.key, desk.key[15:], "hedgehog", "Porcupine", "Ada"):
        assert secret not in lines


async def test_functions_for_the_console(operators: Database, live_server: Live) -> None:
    """A signed-in administrator is checked by id and loses access when the key is revoked."""
    desk = await make_desk(live_server, operators)
    found = await administrators.verify(operators, desk.key)
    assert await administrators.find_administrator(operators, found.id) == found
    await administrators.revoke(operators, desk.prefix)
    with pytest.raises(InvalidAdminKey):
        await administrators.find_administrator(operators, found.id)


async def test_a_busy_tenant_leaves_room_for_others(site: Site, operators: Database) -> None:
    """Edge case 51: one tenant's slow statements never take every connection of administrators."""
    services = site.live.app.state.services
    other = await make_site(site.live, operators)
    busy, idle = [await make_desk(site.live, operators, one.slug) for one in (site, other)]
    async with AsyncExitStack() as stack:
        for _ in range(2):
            held = Confined(services.tenant_admins, site.tenant_id)
            await stack.enter_async_context(held.transaction())
        refused = await busy.ask("GET", f"/tenants/{site.slug}")
        assert (refused.status_code, refused.json()["detail"]) == (503, "unavailable")
        assert (await idle.ask("GET", f"/tenants/{other.slug}")).status_code == 200
    assert (await busy.ask("GET", f"/tenants/{site.slug}")).status_code == 200
