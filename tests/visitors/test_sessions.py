"""Opening and refreshing sessions."""

import time

import httpx
import jwt
import pytest

from factories import Live, Site, make_site
from hlas.store.db import Database
from hlas.tenants import tenants
from hlas.visitors.sessions import ORIGIN_CACHE_SECONDS
from hlas.visitors.tokens import AUDIENCE


async def ask(live: Live, *headers: tuple[str, str]) -> httpx.Response:
    return await live.client.post("/widget/session", headers=list(headers))


async def conversations(operators: Database) -> int:
    row = await operators.one("select count(*) as n from conversations")
    assert row is not None
    return int(row["n"])


async def test_open(site: Site, operators: Database) -> None:
    """A session is a conversation of the origin's tenant, and a token for it."""
    session = await site.open(visitor_id="visitor-7", metadata={"page": "/prices"})
    assert set(session) == {"conversation_id", "token", "expires_in", "ui_config"}
    assert session["expires_in"] == 600
    claims = jwt.decode(session["token"], options={"verify_signature": False})
    assert claims["aud"] == AUDIENCE
    assert claims["tid"] == site.tenant_id
    assert claims["cid"] == session["conversation_id"]
    assert claims["org"] == site.origin
    assert abs(claims["exp"] - time.time() - 600) < 30
    row = await operators.one(
        "select * from conversations where id = $1", session["conversation_id"]
    )
    assert row is not None
    assert (str(row["tenant_id"]), row["visitor_id"]) == (site.tenant_id, "visitor-7")
    assert (row["meta"], row["origin"]) == ({"page": "/prices"}, site.origin)
    created = site.live.events("session_created")
    assert created[-1]["tenant_id"] == site.tenant_id
    assert created[-1]["conversation_id"] == session["conversation_id"]


async def test_allowlist(live_server: Live, operators: Database) -> None:
    """Edge case 38: scheme, host and port must match; localhost matches any port."""
    await tenants.add(
        operators,
        "Shop",
        "shop",
        ["shop.example", "*.wild.example", "http://plain.example:8080", "localhost",
         "háčky.example", "10.0.0.5:3000"],
    )  # fmt: skip
    allowed = [
        "https://shop.example",
        "HTTPS://SHOP.EXAMPLE",
        "https://shop.example:443",
        "https://a.wild.example",
        "https://a.b.wild.example",
        "http://plain.example:8080",
        "http://localhost",
        "http://localhost:5173",
        "https://localhost:8443",
        "https://xn--hky-ela4t.example",
        "https://10.0.0.5:3000",
    ]
    refused = [
        "http://shop.example",
        "https://shop.example:8443",
        "https://www.shop.example",
        "https://shop.example.evil.example",
        "https://evilshop.example",
        "https://wild.example",
        "https://evilwild.example",
        "http://a.wild.example",
        "http://plain.example",
        "https://plain.example:8080",
        "https://localhost.evil.example",
        "http://127.0.0.1",
        "https://10.0.0.5",
        "https://example",
    ]
    invalid = [
        "null",
        "https://user@shop.example",
        "https://shop.example/",
        "https://shop.example.",
        "https://shop.example\\",
        "https://shop.example\t.evil.example",
        "https://xn--a.example",
        "shop.example",
        "",
    ]
    for origins, status, code in (
        (allowed, 200, None),
        (refused, 403, "domain_not_allowed"),
        (invalid, 400, "invalid_origin"),
    ):
        for origin in origins:
            answer = await ask(live_server, ("Origin", origin))
            assert answer.status_code == status, (origin, answer.text)
            assert answer.json().get("detail") == code
    assert await conversations(operators) == len(allowed)
    denied = [line["reason"] for line in live_server.events("session_denied")]
    assert denied == ["domain_not_allowed"] * len(refused) + ["invalid_origin"] * len(invalid)


async def test_headers(site: Site) -> None:
    """Edge case 38: two Origin headers are invalid; Referer counts only without Origin."""
    origin, live = site.origin, site.live
    cases: list[tuple[list[tuple[str, str]], int]] = [
        ([("Origin", origin), ("Origin", origin)], 400),
        ([("Origin", origin), ("Origin", "https://evil.example")], 400),
        ([("Referer", f"{origin}/page?x=1")], 200),
        ([("Referer", "https://evil.example/?" + origin)], 403),
        ([("Referer", f"{origin}@evil.example/")], 400),
        ([("Referer", origin), ("Referer", origin)], 400),
        ([("Origin", "null"), ("Referer", f"{origin}/")], 400),
        ([("Origin", ""), ("Referer", f"{origin}/")], 400),
        ([("Origin", "https://evil.example"), ("Referer", f"{origin}/")], 403),
        ([], 400),
    ]
    for headers, status in cases:
        answer = await ask(live, *headers)
        assert answer.status_code == status, (headers, answer.text)


async def test_nearest_entry_wins(live_server: Live, operators: Database) -> None:
    """Edge case 38: the most specific entry of all tenants wins, in any order of creation."""
    wide = await tenants.add(operators, "Wide", "wide", ["*.example.com"])
    near = await tenants.add(operators, "Near", "near", ["*.shop.example.com"])
    exact = await tenants.add(operators, "Exact", "exact", ["a.shop.example.com"])
    for origin, tenant in (
        ("https://b.example.com", wide),
        ("https://b.shop.example.com", near),
        ("https://a.shop.example.com", exact),
    ):
        answer = await ask(live_server, ("Origin", origin))
        claims = jwt.decode(answer.json()["token"], options={"verify_signature": False})
        assert claims["tid"] == str(tenant.id), origin


async def test_disabled(site: Site, operators: Database) -> None:
    """Edge case 40: disabling and enabling a tenant affects its origin and tokens at once."""
    await tenants.set_active(operators, site.slug, active=False)
    for answer in (
        await ask(site.live, ("Origin", site.origin)),
        await site.live.client.get("/widget/whoami", headers=site.headers()),
        await site.send("to a disabled tenant"),
        await site.live.client.post("/widget/session/refresh", headers=site.headers()),
        await site.live.client.post("/widget/messages/assistant", headers=site.headers()),
        await site.live.client.get(
            f"/widget/conversations/{site.conversation_id}/messages", headers=site.headers()
        ),
    ):
        assert (answer.status_code, answer.json()["detail"]) == (403, "tenant_inactive"), answer.url
    assert await conversations(operators) == 1
    row = await operators.one("select count(*) as n from messages")
    assert row is not None
    assert row["n"] == 0
    await tenants.set_active(operators, site.slug, active=True)
    assert (await site.send("enabled again")).status_code == 200


async def test_removed_domain(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 40: a removed domain opens no session, cached or not."""
    await tenants.remove_domain(operators, site.slug, site.origin)
    assert (await ask(site.live, ("Origin", site.origin))).status_code == 403
    assert await conversations(operators) == 1
    assert ORIGIN_CACHE_SECONDS <= 5


async def test_removed_domain_renews_nothing(site: Site, operators: Database) -> None:
    """Edge case 40: a removed domain refreshes no old token, also if another tenant has it now."""
    await tenants.add_domain(operators, site.slug, "https://kept.example")
    kept = Site(site.live, site.slug, site.tenant_id, "https://kept.example")
    await kept.open()
    other = await make_site(site.live, operators)
    await tenants.remove_domain(operators, site.slug, site.origin)
    refused = [await site.live.client.post("/widget/session/refresh", headers=site.headers())]
    await tenants.add_domain(operators, other.slug, site.origin)
    refused += [await site.live.client.post("/widget/session/refresh", headers=site.headers())]
    for answer in refused:
        assert (answer.status_code, answer.json()["detail"]) == (403, "domain_not_allowed")
    answer = await site.live.client.post("/widget/session/refresh", headers=kept.headers())
    assert answer.status_code == 200


async def test_signed_out(site: Site, operators: Database) -> None:
    """Edge case 40: signing a tenant's visitors out ends every token at its next request."""
    await tenants.sign_out(operators, site.slug)
    answers = [
        await site.live.client.get("/widget/whoami", headers=site.headers()),
        await site.send("after signing out"),
        await site.live.client.post("/widget/session/refresh", headers=site.headers()),
    ]
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {
        (401, "session_revoked")
    }
    await site.open()
    assert (await site.send("a new session")).status_code == 200


async def test_refresh(site: Site, operators: Database) -> None:
    """A refresh returns a new token for the same conversation, also after the first expired."""
    before = site.session
    tokens = site.live.app.state.services.tokens
    tokens._clock = lambda: time.time() + 3600
    expired = await site.live.client.get("/widget/whoami", headers=site.headers())
    assert (expired.status_code, expired.json()["detail"]) == (401, "token_expired")
    answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
    assert answer.status_code == 200
    assert set(answer.json()) == set(before)
    assert answer.json()["conversation_id"] == before["conversation_id"]
    assert answer.json()["token"] != before["token"]
    site.session = answer.json()
    assert (await site.send("after the refresh")).status_code == 200
    assert await conversations(operators) == 1


async def test_refresh_window(site: Site) -> None:
    """After the refresh window a session is expired; another origin can never refresh it."""
    services = site.live.app.state.services
    hours = services.settings.widget_session_refresh_hours
    elsewhere = {**site.headers(), "Origin": "https://evil.example"}
    answer = await site.live.client.post("/widget/session/refresh", headers=elsewhere)
    assert (answer.status_code, answer.json()["detail"]) == (403, "origin_mismatch")
    services.tokens._clock = lambda: time.time() + hours * 3600 + 700
    answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
    assert (answer.status_code, answer.json()["detail"]) == (401, "session_expired")


async def test_refresh_needs_an_origin(site: Site) -> None:
    """A refresh without Origin, or with only a Referer, is a 400."""
    headers = {"Authorization": f"Bearer {site.session['token']}"}
    for extra in ({}, {"Referer": f"{site.origin}/"}):
        answer = await site.live.client.post(
            "/widget/session/refresh", headers={**headers, **extra}
        )
        assert answer.status_code == 400
        assert answer.json() == {
            "detail": "invalid_origin",
            "message": "The request needs exactly one valid Origin header.",
            "request_id": answer.headers["x-request-id"],
        }
    answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
    assert answer.status_code == 200


@pytest.mark.settings(widget_session_max_days=2, widget_session_refresh_hours=24)
async def test_refreshes_do_not_chain_for_ever(site: Site) -> None:
    """However often it is refreshed, a session ends WIDGET_SESSION_MAX_DAYS after opening."""
    tokens, opened = site.live.app.state.services.tokens, time.time()
    for hours in (12, 24, 36, 47):
        tokens._clock = lambda hours=hours: opened + hours * 3600
        answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
        assert answer.status_code == 200, hours
        site.session = answer.json()
    tokens._clock = lambda: opened + 48 * 3600
    answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
    assert (answer.status_code, answer.json()["detail"]) == (401, "session_expired")
    assert (await site.open())["conversation_id"] != site.session["token"]
    assert (
        await site.live.client.post("/widget/session/refresh", headers=site.headers())
    ).is_success


async def test_closed_conversation(site: Site, operators: Database) -> None:
    """A closed conversation accepts no message and no refresh; it can still be read."""
    await operators.execute(
        "update conversations set status = 'closed' where id = $1", site.conversation_id
    )
    assert (await site.send("to a closed one")).json()["detail"] == "conversation_closed"
    answer = await site.live.client.post("/widget/session/refresh", headers=site.headers())
    assert (answer.status_code, answer.json()["detail"]) == (403, "conversation_closed")
    assert (await site.history())["messages"] == []


async def test_visitor_id(site: Site, operators: Database) -> None:
    """Edge case 34: a visitor's id is at most 128 printable characters."""
    await site.open(visitor_id="é" * 128)
    for visitor_id in ("x" * 129, "a\nb", "a\x1b[31m", "a\0"):
        answer = await site.live.client.post(
            "/widget/session", headers={"Origin": site.origin}, json={"visitor_id": visitor_id}
        )
        assert answer.status_code == 422
    assert await conversations(operators) == 2


async def test_tenants_apart(site: Site, operators: Database) -> None:
    """Edge case 36: a body cannot choose the tenant or the conversation."""
    other = await make_site(site.live, operators)
    for field in ("tenant_id", "conversation_id"):
        body = {field: other.tenant_id}
        answer = await site.live.client.post(
            "/widget/session", headers={"Origin": site.origin}, json=body
        )
        assert answer.status_code == 422
    answer = await site.live.client.post(
        f"/widget/session?tenant_id={other.tenant_id}", headers={"Origin": site.origin}
    )
    claims = jwt.decode(answer.json()["token"], options={"verify_signature": False})
    assert claims["tid"] == site.tenant_id
