"""Tokens over HTTP: every protected route refuses an invalid one in the same way."""

import time
from typing import Any

import httpx
import jwt
from uuid_utils import uuid7

from factories import Site, make_site
from hlas.store.db import Database
from hlas.visitors.tokens import AUDIENCE, key_id
from log_scan import SECRET

OTHER = "a secret that this service never had"


def list_protected(site: Site) -> list[tuple[str, str]]:
    return [
        ("GET", "/widget/whoami"),
        ("POST", "/widget/messages"),
        ("POST", "/widget/messages/assistant"),
        ("GET", f"/widget/conversations/{site.conversation_id}/messages"),
        ("POST", "/widget/session/refresh"),
    ]


def token(site: Site, secret: str = SECRET, **changes: Any) -> str:
    claims = {
        "aud": AUDIENCE,
        "tid": site.tenant_id,
        "cid": site.conversation_id,
        "org": site.origin,
        "gen": 1,
        "iat": int(time.time()),
        "exp": int(time.time()) + 600,
        **changes,
    }
    return jwt.encode(claims, secret, algorithm="HS256", headers={"kid": key_id(SECRET)})


async def call(
    site: Site, method: str, path: str, headers: list[tuple[str, str]]
) -> httpx.Response:
    content = b'{"text":"an authorised text"}' if path.endswith("/messages") else None
    body = content if method == "POST" else None
    return await site.live.client.request(method, path, headers=headers, content=body)


async def test_whoami(site: Site) -> None:
    """A token identifies its tenant and conversation."""
    answer = await site.live.client.get("/widget/whoami", headers=site.headers())
    assert answer.json() == {
        "tenant_id": site.tenant_id,
        "conversation_id": site.conversation_id,
    }


async def test_authorization_header(site: Site) -> None:
    """Edge case 39: every protected route answers a missing or invalid token with the right 401."""
    good = site.session["token"]
    unsigned = jwt.encode({"aud": AUDIENCE}, "", algorithm="none")
    cases: list[tuple[list[str], str]] = [
        ([], "missing_authorization"),
        ([""], "invalid_authorization"),
        (["Bearer"], "invalid_authorization"),
        ([good], "invalid_authorization"),
        ([f"Basic {good}"], "invalid_authorization"),
        ([f"Bearer  {good}"], "invalid_authorization"),
        ([f"Bearer {good} {good}"], "invalid_authorization"),
        ([f"Bearer {good}", f"Bearer {good}"], "invalid_authorization"),
        (["Bearer rubbish"], "invalid_token"),
        ([f"Bearer {unsigned}"], "invalid_token"),
        ([f"Bearer {'a' * 5000}"], "invalid_token"),
        ([f"Bearer {good}="], "invalid_token"),
        ([f"Bearer {token(site, OTHER)}"], "invalid_token"),
        ([f"Bearer {token(site, aud='another')}"], "invalid_claims"),
        ([f"Bearer {token(site, exp=str(int(time.time()) + 600))}"], "invalid_claims"),
        ([f"Bearer {token(site, tid='x')}"], "invalid_claims"),
    ]
    for values, code in cases:
        for method, path in list_protected(site):
            headers = [("Origin", site.origin), *(("Authorization", value) for value in values)]
            answer = await call(site, method, path, headers)
            assert (answer.status_code, answer.json()["detail"]) == (401, code), (path, values)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["access-control-allow-origin"] == site.origin
    denied = site.live.events("auth_denied")
    assert len(denied) == len(cases) * len(list_protected(site))
    assert {line["reason"] for line in denied} == {code for _, code in cases}


async def test_expired(site: Site) -> None:
    """Edge case 39: an expired token is token_expired everywhere; it can only be refreshed."""
    old = token(site, exp=int(time.time()) - 120)
    headers = [("Origin", site.origin), ("Authorization", f"Bearer {old}")]
    for method, path in list_protected(site)[:-1]:
        answer = await call(site, method, path, headers)
        assert (answer.status_code, answer.json()["detail"]) == (401, "token_expired"), path
    assert (await call(site, "POST", "/widget/session/refresh", headers)).status_code == 200


async def test_origin_binding(site: Site, operators: Database) -> None:
    """Edge case 38: a token works only on its own origin, or without an Origin header."""
    other = await make_site(site.live, operators)
    secure = f"Bearer {site.session['token']}"
    for origins in (
        [other.origin],
        ["https://evil.example"],
        ["null"],
        [site.origin + "/"],
        [site.origin, site.origin],
        [site.origin.replace("https", "http")],
    ):
        for method, path in list_protected(site):
            headers = [*(("Origin", origin) for origin in origins), ("Authorization", secure)]
            answer = await call(site, method, path, headers)
            assert (answer.status_code, answer.json()["detail"]) == (403, "origin_mismatch")
            assert "access-control-allow-origin" not in answer.headers
    for method, path in list_protected(site)[:2]:
        answer = await call(site, method, path, [("Authorization", secure)])
        assert answer.status_code == 200


async def test_conversation_is_gone(site: Site, operators: Database) -> None:
    """Edge case 36: a token of a removed and of a foreign conversation is refused equally."""
    other = await make_site(site.live, operators)
    removed = token(site)
    await operators.execute("delete from conversations where id = $1", site.conversation_id)
    never = token(site, cid=str(uuid7()))
    foreign = token(site, cid=other.conversation_id)
    foreign_tenant = token(site, tid=other.tenant_id)
    no_tenant = token(site, tid=str(uuid7()), cid=other.conversation_id)
    for value in (removed, never, foreign, foreign_tenant, no_tenant):
        claims = jwt.decode(value, options={"verify_signature": False})
        for method, path in list_protected(site):
            path = path.replace(site.conversation_id, claims["cid"])  # noqa: PLW2901  # its own
            headers = [("Origin", site.origin), ("Authorization", f"Bearer {value}")]
            answer = await call(site, method, path, headers)
            assert (answer.status_code, answer.json()["detail"]) == (
                403,
                "conversation_not_found",
            ), (path, claims)
    row = await operators.one("select count(*) as n from messages")
    assert row is not None
    assert row["n"] == 0
