"""Attacks on authentication: tokens, identities, keys, cookies, forms."""

import base64
import itertools
import time
from typing import Any
from uuid import UUID

import httpx
import jwt
import orjson
import pytest

import log_scan
from administration import dump_state, make_desk
from attacks import Answer, play, split
from browsers import Browser, make_browser
from factories import Live, Site, make_site
from hlas.doctor import probes
from hlas.operators import sign_ins
from hlas.store.db import Database
from hlas.tenants import tenants, visitor_keys
from hlas.visitors.tokens import key_id
from raw_http import request
from signing import Server, forge

SECRET = log_scan.SECRET.encode()


def header(**changes: Any) -> dict[str, Any]:
    return {"alg": "HS256", "typ": "JWT", "kid": key_id(log_scan.SECRET), **changes}


def make_tokens(good: str, doctor: str) -> dict[str, tuple[str, str]]:
    """Name, Authorization header, and expected error code."""
    claims = orjson.dumps(jwt.decode(good, options={"verify_signature": False}))
    # A correct token, as somebody with the secret would sign it, except for one change.
    forged = {
        "kid is a path": forge(header(kid="../../../dev/null"), claims, b""),
        "kid is a query": forge(header(kid="x' union select 'a"), claims, b"a"),
        "kid is huge": forge(header(kid="k" * 1000), claims, SECRET),
        "kid is an object": forge(header(kid={"a": 1}), claims, SECRET),
        "kid is a list": forge(header(kid=[key_id(log_scan.SECRET)]), claims, SECRET),
        "kid with a space": forge(header(kid=f"{key_id(log_scan.SECRET)} "), claims, SECRET),
        "kid in upper case": forge(header(kid=key_id(log_scan.SECRET).upper()), claims, SECRET),
        "key in the header": forge(header(kid="x", jwk={"kty": "oct", "k": "YQ"}), claims, b"a"),
        "key elsewhere": forge(header(kid="x", jku="https://evil.example"), claims, b"a"),
        "certificate": forge(header(kid="x", x5u="https://evil.example"), claims, b"a"),
        "signed by nothing": forge(header(), claims, b""),
        "alg in another case": forge(header(alg="hS256"), claims, SECRET),
        "alg with a space": forge(header(alg="HS256 "), claims, SECRET),
        "alg in a list": forge(header(alg=["HS256"]), claims, SECRET),
        "compressed": forge(header(zip="DEF", alg="RSA-OAEP"), claims, SECRET),
        "nested": forge(header(cty="JWT", typ="JOSE"), f'"{good}"'.encode(), SECRET),
        "not an object": forge(header(), b"[]", SECRET),
        "claims are no JSON": forge(header(), b"{", SECRET),
        "typ in lower case": forge(header(typ="jwt"), claims, SECRET),
    }
    twice = forge(header(), claims[:-1] + b',"cid":"x"}', SECRET)
    found = {name: (f"Bearer {token}", "invalid_token") for name, token in forged.items()}
    found |= {
        "a claim twice": (f"Bearer {twice}", "invalid_claims"),
        "the doctor's": (f"Bearer {doctor}", "invalid_token"),
        "percent-encoded": (f"Bearer {good.replace('.', '%2E')}", "invalid_token"),
        "in quotes": (f'Bearer "{good}"', "invalid_token"),
        "with NEL behind": (f"Bearer {good}\x85", "invalid_token"),
        "no-break space between": (f"Bearer\xa0{good}", "invalid_authorization"),
        "tab between": (f"Bearer\t{good}", "invalid_authorization"),
        "two spaces": (f"Bearer  {good}", "invalid_authorization"),
        "two tokens": (f"Bearer {good} {good}", "invalid_authorization"),
        "a comma": (f"Bearer {good}, Bearer {good}", "invalid_authorization"),
        "a parameter": (f"Bearer token={good}", "invalid_token"),
        "Basic": (
            f"Basic {base64.b64encode(good.encode()).decode()[:40]}",
            "invalid_authorization",
        ),
        "no scheme": (good, "invalid_authorization"),
        "long s": (f"Bearer\u017f {good}".encode().decode("latin-1"), "invalid_authorization"),
        "scheme alone": ("Bearer", "invalid_authorization"),
        "an empty one": ("", "invalid_authorization"),
    }
    return found


async def ask(url: str, method: str, path: str, *lines: str, body: bytes = b"") -> Answer:
    length = (f"Content-Length: {len(body)}",) if body else ()
    sent = request(method, path, *lines, *length, "Connection: close", body=body)
    (answer,) = split(await play(url, sent))
    return answer


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_tokens(site: Site, operators: Database) -> None:
    """Edge case 39: none is accepted on any route, and nothing is read or written."""
    tried = make_tokens(site.session["token"], probes.issue(log_scan.SECRET))
    assert len(tried) >= 35
    before = await dump_state(operators)
    routes = (
        ("GET", "/widget/whoami", b""),
        ("POST", "/widget/messages", b'{"text":"x"}'),
        ("POST", "/widget/messages/assistant", b""),
        ("POST", "/widget/session/refresh", b""),
        ("GET", f"/widget/conversations/{site.conversation_id}/messages", b""),
    )
    for (name, (value, code)), (method, path, body) in itertools.product(tried.items(), routes):
        lines = (f"Origin: {site.origin}", f"Authorization: {value}")
        answer = await ask(site.live.url, method, path, *lines, body=body)
        assert (answer.status, answer.detail) == (401, code), (name, path)
    assert await dump_state(operators) == before


def make_identities(server: Server, slug: str, session_token: str) -> dict[str, str]:
    kid, secret, now = server.key.kid, server.key.material.encode(), int(time.time())
    claims = {"sub": "eva", "aud": slug, "iat": now, "exp": now + 600}
    body = orjson.dumps(claims)
    head = {"alg": "HS256", "typ": "JWT", "kid": kid}
    return {
        "none": forge({**head, "alg": "none"}, body),
        "None": forge({**head, "alg": "None"}, body, secret),
        "kid is a path": forge({**head, "kid": f"../{kid}"}, body, secret),
        "kid is a list": forge({**head, "kid": [kid]}, body, secret),
        "kid is null": forge({**head, "kid": None}, body, secret),
        "no kid": forge({"alg": "HS256"}, body, secret),
        "kid is huge": forge({**head, "kid": kid * 100}, body, secret),
        "crit": forge({**head, "crit": ["exp"]}, body, secret),
        "b64": forge({**head, "b64": False, "crit": ["b64"]}, body, secret),
        "b64 alone": forge({**head, "b64": False}, body, secret),
        "key in the header": forge({**head, "kid": "x", "jwk": {"k": "YQ"}}, body, b"a"),
        "session token": session_token,
        "nested": forge(head, orjson.dumps(server.sign("eva", slug)), secret),
        "sub twice": forge(head, body[:-1] + b',"sub":""}', secret),
        "aud by another name": forge(head, orjson.dumps({**claims, "aud": f"{slug} "}), secret),
        "aud with NUL": forge(head, orjson.dumps({**claims, "aud": f"{slug}\x00"}), secret),
        "exp in text": forge(head, orjson.dumps({**claims, "exp": str(now + 600)}), secret),
        "exp is huge": forge(head, body.replace(b'"exp":', b'"exp":' + b"9" * 400), secret),
        "exp is infinite": forge(head, body.replace(b'"exp":', b'"exp":1e999,"x":'), secret),
        "sub is an object": forge(head, orjson.dumps({**claims, "sub": {"a": 1}}), secret),
        "deep": forge(head, b"[" * 1500, secret),
        "signed by its public name": forge(head, body, kid.encode()),
        "spaces around": f" {server.sign('eva', slug)} ",
        "new line": f"{server.sign('eva', slug)}\n",
        "four parts": f"{server.sign('eva', slug)}.x",
        "empty parts": "..",
        "long": "a." * 3000,
        "letters beyond ASCII": "é.é.é",
    }


async def test_identities(site: Site, operators: Database) -> None:
    """Edge case 39: only an identity that the tenant's key has signed is accepted."""
    server, foreign = Server(), Server()
    other = await make_site(site.live, operators)
    for one, signer in ((site, server), (other, foreign)):
        log_scan.hear(signer.key.material)
        await visitor_keys.add(operators, UUID(one.tenant_id), signer.key)
        await tenants.update(operators, one.slug, {"identity_mode": "optional"})
    tried = make_identities(server, site.slug, site.session["token"])
    tried["another tenant's"] = foreign.sign("eva", site.slug)
    tried["for another tenant"] = server.sign("eva", other.slug)
    assert len(tried) >= 30
    before = await dump_state(operators)
    for name, identity in tried.items():
        body = orjson.dumps({"identity": identity, "visitor_id": "eva"})
        answer = await ask(
            site.live.url, "POST", "/widget/session", f"Origin: {site.origin}", body=body
        )
        assert (answer.status, answer.detail) == (401, "invalid_identity"), name
    assert await dump_state(operators) == before
    assert (await site.open(identity=server.sign("eva", site.slug)))["token"]


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_admin_keys(site: Site, operators: Database) -> None:
    """Only the exact key is accepted: nothing is trimmed, folded or read from elsewhere."""
    key = (await make_desk(site.live, operators)).key
    log_scan.hear(key)
    spoiled = {
        "cut": f"Bearer {key[:-1]}",
        "longer": f"Bearer {key}a",
        "other case": f"Bearer {key.swapcase()}",
        "prefix alone": f"Bearer {key[:15]}",
        "two": f"Bearer {key} {key}",
        "no-break space": f"Bearer {key}\xa0",
        "quoted": f'Bearer "{key}"',
        "encoded": f"Bearer {key.replace('_', '%5f')}",
        "wildcard": f"Bearer {key[:15]}{'%' * 40}",
        "Basic": f"Basic {base64.b64encode(f'{key}:'.encode()).decode()}",
        "session": f"Bearer {site.session['token']}",
        "scheme": f"hlas {key}",
    }
    elsewhere = {
        "another header": f"X-Api-Key: {key}",
        "a cookie": f"Cookie: hlas_console={key}",
        "the proxy's header": f"Proxy-Authorization: Bearer {key}",
        "twice": f"Authorization: Bearer {key}\r\nAuthorization: Bearer {key}",
        "name with an underscore": f"Authorization_: Bearer {key}",
    }
    lines = {name: f"Authorization: {value}" for name, value in spoiled.items()} | elsewhere
    for (name, line), path in itertools.product(
        lines.items(), ("/admin/me", f"/admin/tenants/{site.slug}", "/admin/audit")
    ):
        answer = await ask(site.live.url, "GET", path, line)
        assert answer.status == 401, (name, path)
    query = await ask(site.live.url, "GET", f"/admin/me?authorization=Bearer+{key}&key={key}")
    assert query.status == 401


COOKIES = {
    "no-break space before": "\xa0{name}={value}",
    "NEL before": "\x85{name}={value}",
    "no-break space behind": "{name}\xa0={value}",
    "NEL behind": "{name}\x85={value}",
    "no-break space before the value": "{name}=\xa0{value}",
    "twice": "{name}={value}; {name}={value}",
    "ours behind another's": "{name}=x; {name}={value}",
    "ours before another's": "{name}={value}; {name}=x",
    "two headers": "{name}={value}\r\nCookie: {name}=x",
    "quoted": '{name}="{value}"',
    "octal": '{name}="\\{octal}{rest}"',
    "upper case": "{upper}={value}",
    "other separator": "a=b, {name}={value}",
    "in another's quotes": 'a="b; {name}={value}"',
    "no name": "={name}={value}",
    "version": '$Version="1"; ${name}={value}',
    "encoded name": "%68{cut}={value}",
    "tab before": "\t{name}={value}",
    "array": "{name}[]={value}",
    "space before =": "{name} ={value}",
}


@pytest.mark.settings(trusted_proxies="127.0.0.0/8", rate_limit_admin_denied_ip="off")
@pytest.mark.parametrize("over_tls", [False, True])
async def test_cookies(site: Site, operators: Database, over_tls: bool) -> None:  # noqa: FBT001  # of pytest
    """Edge case 53: a cookie counts only under its exact name and once; others cannot set it."""
    browser = await make_browser(site.live, operators)
    value = browser.client.cookies["hlas_console"]
    name = "__Host-hlas_console" if over_tls else "hlas_console"
    lines = ("X-Forwarded-Proto: https",) if over_tls else ()
    good = await ask(
        site.live.url, "GET", "/console/tenants", f"Cookie: a=b; {name}={value}", *lines
    )
    assert good.status == 200
    fields = {
        "name": name,
        "upper": name.upper(),
        "cut": name[1:],
        "value": value,
        "octal": f"{ord(value[0]):03o}",
        "rest": value[1:],
    }
    for kind, cookie in COOKIES.items():
        line = f"Cookie: {cookie.format(**fields)}"
        answer = await ask(site.live.url, "GET", "/console/tenants", line, *lines)
        # The parser itself removes a tab before a value.
        assert answer.status == (200 if kind == "tab before" else 303), kind
    if over_tls:
        bare = await ask(site.live.url, "GET", "/console", f"Cookie: hlas_console={value}", *lines)
        assert bare.status == 303


NEXT = (
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/console/\\evil.example",
    "/console/..//evil.example",
    "https:evil.example",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)//console/",
    "data:text/html,x",
    "/console@evil.example",
    "/console.evil.example",
    "/%2f%2fevil.example",
    "/console%0d%0aSet-Cookie:x=y",
    "/console/\r\nSet-Cookie: x=y",
    "/console/\n/evil",
    "/console/\x00",
    "/console/\u2028",
    "/console/\uff0f\uff0fevil.example",
    "/console/?next=//evil.example",
    "/console/#//evil.example",
    " /console/ ",
    "\t//evil.example",
    "console",
    "/CONSOLE/",
    "",
)


async def test_next(live_server: Live, operators: Database) -> None:
    """`next` stays on pages of the console, in the form and after signing in."""
    key = (await make_desk(live_server, operators)).key
    log_scan.hear(key)

    async def sign_in(wanted: str) -> httpx.Response:
        browser = await make_browser(live_server)
        page = await browser.get("/sign-in", params={"next": wanted})
        assert "evil" not in page.text, wanted
        assert "javascript" not in page.text.lower(), wanted
        return await browser.client.post(
            "/console/sign-in",
            params={"next": wanted},
            data={"key": key, "form_token": browser.token},
        )

    for wanted in NEXT:
        answer = await sign_in(wanted)
        assert answer.status_code == 303, wanted
        assert answer.headers["location"] == "/console", wanted
        (cookie,) = answer.headers.get_list("set-cookie")
        assert cookie.startswith("hlas_console="), wanted


async def test_methods(site: Site, operators: Database) -> None:
    """Only a POST with our own form changes anything: no other method, header or address."""
    browser = await make_browser(site.live, operators)
    before = await dump_state(operators)
    paths = (
        "/console/tenants",
        f"/console/tenants/{site.slug}",
        f"/console/tenants/{site.slug}/remove",
        f"/console/tenants/{site.slug}/sign-out",
        f"/console/tenants/{site.slug}/domains",
        f"/console/tenants/{site.slug}/domains/remove",
        f"/console/tenants/{site.slug}/looks",
        f"/console/tenants/{site.slug}/knowledge",
        f"/console/tenants/{site.slug}/visitor-keys/remove",
        f"/console/tenants/{site.slug}/conversations/{site.conversation_id}/close",
        "/console/sign-out",
    )
    fields = {"form_token": browser.token, "slug": site.slug, "name": "x", "domain": site.origin}
    overriding = {
        "X-HTTP-Method-Override": "POST",
        "X-Method-Override": "POST",
        "X-HTTP-Method": "POST",
    }
    for path, method in itertools.product(
        paths, ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")
    ):
        answer = await browser.client.request(
            method, path, params={**fields, "_method": "POST"}, headers=overriding
        )
        has_page = path.endswith(("/tenants", site.slug, "/looks", "/knowledge"))
        shown = 200 if has_page else 404
        assert answer.status_code == (shown if method == "GET" else 405), (method, path)
    for path in paths:
        # A form token in the query, or in a body of another type, is not accepted.
        in_query = await browser.client.post(
            path, params=fields, headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert in_query.status_code == 403, path
        for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x"):
            other = await browser.client.post(
                path, content=orjson.dumps(fields), headers={"Content-Type": kind}
            )
            assert other.status_code == 415, (path, kind)
    assert await dump_state(operators) == before
    assert (await browser.get("/tenants")).status_code == 200, "still signed in"


async def test_forms_of_others(site: Site, operators: Database) -> None:
    """A form works only for the sign-in that it was rendered for."""
    desk = await make_desk(site.live, operators)
    first, second = await make_browser(site.live), await make_browser(site.live)
    for browser in (first, second):
        assert (await browser.sign_in(desk.key)).status_code == 303
    tokens = {
        "of another sign-in": second.token,
        "of the key": sign_ins.form_token(desk.key),
        "of nothing": sign_ins.form_token(""),
        "in upper case": first.token.upper(),
        "cut": first.token[:-1],
        "with a space": f"{first.token} ",
        "beyond ASCII": "é" * 64,
        "null": "null",
    }
    path = f"/tenants/{site.slug}/sign-out"
    for name, token in tokens.items():
        assert (await first.post(path, token)).status_code == 403, name
    stale = Browser(second.client, second.token)
    assert (await second.post("/sign-out")).status_code == 303
    assert (await stale.post(path)).headers["location"].startswith("/console/sign-in")
    assert (await first.post(path)).status_code == 303
