"""The console over plain HTTP: authentication, forms, and headers of every response."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
from fastapi.routing import iter_route_contexts

from administration import add_model, audit_of, dump_state, make_desk
from browsers import make_browser
from factories import Live, Site, make_site
from hlas.api.console import access, entrance
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.tenants import tenants

# Reachable without signing in, and without data of anybody.
OPEN = {
    "/console/sign-in",
    "/console/preview",
    *(f"/console/{name}" for name in entrance.FILES),
}
REVISION = re.compile(r'name="revision" value="([0-9a-f]+)"')
NOWHERE = str(uuid4())


def console_routes(live: Live) -> Iterator[tuple[str, str, Any]]:
    for route in iter_route_contexts(live.app.routes):
        if (route.path or "").startswith("/console"):
            for method in sorted(set(route.methods or {"GET"}) - {"HEAD"}):
                yield method, str(route.path), route


async def places_of(site: Site, operators: Database) -> dict[str, str]:
    added = await entries.add(operators, UUID(site.tenant_id), Entry("Where?", "Here."))
    return {
        "slug": site.slug,
        "conversation_id": site.conversation_id,
        "entry_id:uuid": str(added.id),
        "source_id": NOWHERE,
        "question_id": f"{site.conversation_id}.1",
        "model": await add_model(operators),
        "rest:path": "nowhere",
    }


def fill(template: str, places: dict[str, str]) -> str:
    return re.sub(r"\{([^}]+)\}", lambda found: places[found[1]], template)[len("/console") :]


def test_every_page_asks_who_it_is(live_server: Live) -> None:
    """Every page has the dependency that authenticates."""
    routes = [route for route in console_routes(live_server) if route[1] not in OPEN]
    assert len(routes) >= 20
    for method, path, route in routes:
        calls = [dependency.call for dependency in route.dependant.dependencies]
        # Sign-out authenticates by itself, because it also removes the sign-in.
        assert access.require_signed_in in calls or path == "/console/sign-out", (method, path)


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_nothing_without_signing_in(
    live_server: Live, site: Site, operators: Database
) -> None:
    """Edge case 36: no, forged or ended cookie, or a revoked key: redirect to the sign-in page."""
    places = await places_of(site, operators)
    desk = await make_desk(live_server, operators)
    revoked = await make_browser(live_server)
    await revoked.sign_in(desk.key)
    ended = await make_browser(live_server, operators)
    cookie, token = ended.client.cookies["hlas_console"], ended.token
    assert (await ended.post("/sign-out")).status_code == 303
    assert "hlas_console" not in ended.client.cookies
    ended.client.cookies.set("hlas_console", cookie)
    ended.token = token
    await administrators.revoke(operators, desk.prefix)
    stranger = await make_browser(live_server)
    guesser = await make_browser(live_server)
    guesser.client.cookies.set("hlas_console", "a" * 43)
    before = await dump_state(operators)
    for method, path, _ in console_routes(live_server):
        if path in OPEN:
            continue
        for browser in (stranger, guesser, ended, revoked):
            call = browser.get if method == "GET" else browser.post
            answer = await call(fill(path, places))
            assert answer.status_code == 303, (method, path)
            assert answer.headers["Location"].startswith("/console/sign-in")
    assert await dump_state(operators) == before


async def test_no_change_without_our_own_form(site: Site, operators: Database) -> None:
    """A form without its token, with another's token or from another site: 403, no change."""
    places = await places_of(site, operators)
    mine = await make_browser(site.live, operators)
    other = await make_browser(site.live, operators)
    before = await dump_state(operators)
    forms = {"slug": site.slug, "domain": site.origin, "name": "taken", "question": "q"}
    for method, path, _ in console_routes(site.live):
        if method == "GET" or path == "/console/sign-in":
            continue
        for token in ("", "0" * 64, other.token):
            answer = await mine.post(fill(path, places), token, **forms)
            assert answer.status_code == 403, path
            assert "load it again" in answer.text
        for origin in ("cross-site", "same-site", "none"):
            mine.client.headers["Sec-Fetch-Site"] = origin
            assert (await mine.post(fill(path, places), **forms)).status_code == 403
        del mine.client.headers["Sec-Fetch-Site"]
        mine.client.headers["Origin"] = site.origin
        assert (await mine.post(fill(path, places), **forms)).status_code == 403
        del mine.client.headers["Origin"]
    assert await dump_state(operators) == before
    assert (await mine.get("/tenants")).status_code == 200, "still signed in"


async def test_content_types(site: Site, operators: Database) -> None:
    """JSON routes refuse forms, and the console accepts only forms of bounded size."""
    browser = await make_browser(site.live, operators)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await site.live.client.post(
        "/widget/messages", headers={**site.headers(), **form}, content="text=x"
    )
    assert answer.status_code == 415
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
        answer = await browser.client.post(
            "/console/tenants", content="{}", headers={"Content-Type": kind}
        )
        assert answer.status_code == 415
    assert (await browser.post("/tenants", name="x" * 200_000)).status_code == 413
    bad = await browser.client.post("/console/tenants", content=b"name=%ff", headers=form)
    assert bad.status_code == 422
    many = await browser.client.post("/console/tenants", content="a=1&" * 200, headers=form)
    assert many.status_code == 422


async def test_a_tenants_key_reaches_that_tenant_alone(
    live_server: Live, operators: Database
) -> None:
    """Edge case 36: another tenant's pages are 404 or 403, as if it did not exist."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    await other.send("a secret of the other shop")
    places = await places_of(other, operators)
    missing = {**places, "slug": "no-such", "conversation_id": NOWHERE, "entry_id:uuid": NOWHERE}
    browser = await make_browser(live_server, operators, own.slug)
    before = await dump_state(operators)
    for method, path, _ in console_routes(live_server):
        if "{slug}" not in path:
            continue
        call = browser.get if method == "GET" else browser.post
        found = await call(fill(path, places))
        assert found.status_code in {403, 404}, (method, path)
        assert other.slug not in found.text
        absent = await call(fill(path, missing))
        assert absent.status_code == found.status_code, (method, path)
    for path in ("", "/conversations", "/tenants", "/blocked", "/incidents", "/audit"):
        page = await browser.get(path, follow_redirects=True)
        assert page.status_code == 200
        assert other.slug not in page.text, path
        narrowed = await browser.get(path, params={"tenant": other.slug})
        assert other.slug not in narrowed.text, path
    for path, fields in (
        ("/tenants", {"name": "Mine", "slug": "mine"}),
        (f"/tenants/{own.slug}/domains", {"domain": "evil.example"}),
        (f"/tenants/{own.slug}/remove", {"slug": own.slug}),
    ):
        assert (await browser.post(path, **fields)).status_code == 403, path
    assert await dump_state(operators) == before


async def test_a_tenants_key_changes_what_is_its_own(
    live_server: Live, operators: Database
) -> None:
    """A tenant may change name and retention, but not limits or activity, even by forged forms."""
    own = await make_site(live_server, operators)
    browser = await make_browser(live_server, operators, own.slug)
    page = await browser.get(f"/tenants/{own.slug}")
    assert "Limits" not in page.text
    revision = REVISION.findall(page.text)[0]
    answer = await browser.post(
        f"/tenants/{own.slug}",
        name="Better",
        retention_days="30",
        messages_tenant="1000000/s",
        revision=revision,
    )
    assert answer.status_code == 303
    changed = await tenants.find_tenant(operators, own.slug)
    assert (changed.name, changed.retention_days) == ("Better", 30)
    assert (changed.limits, changed.is_active) == ({}, True)


async def test_nobody_overwrites_what_they_have_not_seen(site: Site, operators: Database) -> None:
    """If two forms start from the same state, the second is refused and nothing of it is stored."""
    browser = await make_browser(site.live, operators)
    page = await browser.get(f"/tenants/{site.slug}")
    revision = REVISION.findall(page.text)[0]
    path = f"/tenants/{site.slug}"
    fields = {"revision": revision, "is_active": "on"}
    assert (await browser.post(path, name="First", **fields)).status_code == 303
    answer = await browser.post(path, name="Second", **fields)
    assert answer.status_code == 412
    assert "It has been changed since you read it" in answer.text
    assert (await tenants.find_tenant(operators, site.slug)).name == "First"
    assert [event[1] for event in await audit_of(operators)].count("tenant.update") == 1


async def test_cookies_and_headers(live_server: Live, operators: Database) -> None:
    """HttpOnly and SameSite=Strict; no inline script or style, no framing, no cache."""
    browser = await make_browser(live_server)
    desk = await make_desk(live_server, operators)
    answer = await browser.sign_in(desk.key)
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("hlas_console="))
    for word in ("HttpOnly", "SameSite=strict", "Path=/console", "Max-Age=43200"):
        assert word in cookie
    assert "Secure" not in cookie
    assert desk.key not in cookie
    for path in ("", "/tenants", "/audit", "/nowhere"):
        page = await browser.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["Cache-Control"] == "no-store"
        assert not re.search(r"<script(?![^>]* src=)|\sstyle=|\son[a-z]+=", page.text)
    evil = await browser.get("", headers={"Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in evil.headers
    preview = await browser.get("/preview")
    assert "sandbox allow-scripts" in preview.headers["Content-Security-Policy"]
    assert "connect-src 'none'" in preview.headers["Content-Security-Policy"]


async def test_next_stays_in_the_console(live_server: Live, operators: Database) -> None:
    """`next` redirects only to pages of the console."""
    desk = await make_desk(live_server, operators)
    for wanted, reached in (
        ("/console/audit", "/console/audit"),
        ("https://evil.example", "/console"),
        ("//evil.example", "/console"),
        ("/console//evil.example", "/console"),
        ("/console/../demo", "/console/../demo"),
        ("/consoles", "/console"),
        ("/console\\evil", "/console"),
        ("/console/a\r\nSet-Cookie: x=y", "/console"),
    ):
        browser = await make_browser(live_server)
        await browser.get("/sign-in")
        answer = await browser.post(f"/sign-in?{urlencode({'next': wanted})}", key=desk.key)
        assert answer.headers["Location"] == reached, wanted
        assert "x" not in answer.cookies


@pytest.mark.settings(rate_limit_admin_denied_ip="3/min")
async def test_guessing_is_limited(live_server: Live, operators: Database) -> None:
    """Edge case 53: wrong keys use up the address's limit; a valid one still signs in."""
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    for _ in range(3):
        answer = await browser.sign_in("hlas_" + "a" * 50)
        assert answer.status_code == 401
        assert "unknown or was revoked" in answer.text
    refused = await browser.sign_in("hlas_" + "a" * 50)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) >= 1
    assert live_server.events("blocked")[-1]["scope"] == "ip"
    assert (await browser.sign_in(desk.key)).status_code == 303
    assert (await browser.get("/tenants")).status_code == 200


async def test_signing_in_makes_a_new_secret(live_server: Live, operators: Database) -> None:
    """Signing in replaces a cookie that was set before."""
    desk = await make_desk(live_server, operators)
    browser = await make_browser(live_server)
    planted = "b" * 43
    browser.client.cookies.set("hlas_console", planted, domain="127.0.0.1", path="/console")
    await browser.sign_in(desk.key)
    values = {
        cookie.value for cookie in browser.client.cookies.jar if cookie.name == "hlas_console"
    }
    assert len(values - {planted}) == 1
    victim = await make_browser(live_server)
    victim.client.cookies.set("hlas_console", planted)
    assert (await victim.get("")).status_code == 303
    rows = await operators.all("select secret_hash from signins")
    assert [len(row["secret_hash"]) for row in rows] == [32]


async def test_a_sign_in_ends_by_itself(live_server: Live, operators: Database) -> None:
    """A sign-in ends after two idle hours, and after twelve hours in any case."""
    for column, hours in (("last_seen_at", 2), ("created_at", 12)):
        browser = await make_browser(live_server, operators)
        assert (await browser.get("")).status_code == 200
        await operators.execute(f"update signins set {column} = now() - interval '{hours} hours'")
        assert (await browser.get("")).status_code == 303
