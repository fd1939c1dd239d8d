"""Attacks on pages, files and tenants' settings."""

import itertools
import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from administration import dump_state, make_desk
from attacks import LAST, attack, fire, play, split
from factories import Live, Site, make_site
from hlas.store.db import Database
from raw_http import request

FOLDERS = ("/docs/", "/demo/", "/console/", "/widget/", "/widget/0/", "/")
FILES = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "..%252f..%252fetc%252fpasswd",
    "%2e%2e/%2e%2e/settings.py",
    "..%5c..%5csettings.py",
    "....//....//settings.py",
    "..;/..;/settings.py",
    "%2fetc%2fpasswd",
    "file:%2f%2f%2fetc%2fpasswd",
    "start.js%00.css",
    "widget.js%00",
    "console.js%2f..%2ftemplates%2fbase.html",
    "templates/base.html",
    "widget.js.map",
    "src/widget.ts",
    ".env",
    ".git/config",
    "__init__.py",
)


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_files(live_server: Live) -> None:
    """Edge case 47: only files with their exact names are served, from no other folder."""
    attacks = []
    for folder, name in itertools.product(FOLDERS, FILES):
        target = folder + name
        # A page of the console redirects to the sign-in page; everything else is 404.
        status = 303 if folder == "/console/" and "%00" not in name else 404
        attacks.append(attack(target, request("GET", target) + LAST, says=[status, 200]))
    assert len(attacks) >= 100
    await fire(live_server.url, attacks)


CACHED = ("/", "/demo", "/demo/en", "/widget.js", "/docs", "/openapi.json", "/console/preview")
POISON = (
    "X-Forwarded-Host: evil.example",
    "X-Forwarded-Server: evil.example",
    "X-Forwarded-Proto: evil",
    "X-Forwarded-Scheme: http",
    "X-Forwarded-Port: 1337",
    "X-Forwarded-Prefix: /evil",
    "X-Host: evil.example",
    "X-Original-URL: /evil",
    "X-Rewrite-URL: /evil",
    "X-HTTP-Host-Override: evil.example",
    "Forwarded: host=evil.example;proto=https",
    "X-Script-Name: /evil",
    "Referer: https://evil.example/",
    "User-Agent: <script>evil</script>",
    "Accept: text/evil",
    "Range: bytes=0-0",
    "Range: bytes=0-,0-,0-,0-,0-",
    "If-Range: evil",
    "Accept-Encoding: gzip;q=0, evil",
    "Accept-Encoding: identity;q=1, *;q=0",
)
VARYING = re.compile(rb"(?m)^(date|x-request-id): .*\r?\n?")


def without_varying(received: bytes) -> bytes:
    return VARYING.sub(b"", received)


async def test_poisoned_caches(live_server: Live) -> None:
    """A cached response does not depend on headers that are not in Vary, such as Host."""
    host = b"Host: hlas.test"
    for path in CACHED:
        sent = request("GET", path, "Connection: close")
        plain = without_varying(await play(live_server.url, sent))
        for evil in (b"Host: evil.example", b"Host: evil.example:1", b"Host: [", b"Host: a@evil"):
            received = await play(live_server.url, sent.replace(host, evil))
            assert without_varying(received) == plain, (path, evil)
        for line in POISON:
            received = await play(
                live_server.url, sent.replace(host, host + f"\r\n{line}".encode())
            )
            assert without_varying(received) == plain, (path, line)


TAGS = (
    '"x"',
    'W/"x"',
    "*",
    '"x","y",' * 1500,
    ",,,,",
    '"',
    "W/",
    "x" * 20_000,
    '"{tag}',
    "{tag}",
    '"x", W/"{tag}"',
    '"{tag}-gzip"',
    '"{tag}-br"',
)


async def test_tags(live_server: Live) -> None:
    """If-None-Match only saves a body, whatever its value."""
    for path in ("/widget.js", "/demo/en", "/console/console.js"):
        whole = await live_server.client.get(path, headers={"Accept-Encoding": "identity"})
        tag = whole.headers["etag"].strip('"')
        for text in TAGS:
            headers = {"If-None-Match": text.format(tag=tag), "Accept-Encoding": "identity"}
            answer = await live_server.client.get(path, headers=headers)
            knows = text.strip() == "*" or ("{tag}" in text and "-br" not in text)
            assert answer.status_code == (304 if knows else 200), text[:30]
            assert answer.headers["etag"] == whole.headers["etag"]
            assert answer.content == (b"" if knows else whole.content)


def make_origins(own: str) -> tuple[str, ...]:
    host = own.removeprefix("https://")
    return (
        "null",
        "*",
        "",
        f"{own}.evil.example",
        f"https://evil{host}",
        f"https://evil.example/{host}",
        f"https://{host}@evil.example",
        f"https://{host}%00.evil.example",
        f"https://{host}%60.evil.example",
        f"https://{host.replace('.', 'x')}",
        f"https://sub.{host}",
        f"http://{host}",
        f"{own}:8443",
        f"{own}/",
        f"{own}?",
        f"{own} https://evil.example",
        f"{own}, https://evil.example",
        f"{own}\x85",
        f"{own}_",
        f"{own}.",
        f"https://{host}\\.evil.example",
        f"https://{host}&.evil.example",
        f"https://{host}'.evil.example",
        f"file://{host}",
        f"chrome-extension://{host}",
        f"//{host}",
        host,
        f"https:{host}",
        f"https://[{host}]",
        "https://.*",
        "https://",
        f"https://{'a' * 300}.{host}",
    )


async def test_origins(site: Site, operators: Database) -> None:
    """Edge case 38: no look-alike of an allowed origin opens a session or can read a response."""
    origins = make_origins(site.origin)
    assert len(origins) >= 32
    before = await dump_state(operators)
    token = f"Authorization: Bearer {site.session['token']}"
    asked = "Access-Control-Request-Method: POST"
    for origin in origins:
        lines = (f"Origin: {origin}", "Connection: close")
        for sent in (
            request("POST", "/widget/session", *lines),
            request("OPTIONS", "/widget/session", asked, *lines),
            request("GET", "/widget/whoami", token, *lines),
            request("POST", "/widget/session/refresh", token, *lines),
        ):
            (answer,) = split(await play(site.live.url, sent))
            assert answer.status in {400, 403}, (origin, sent[:40])
            assert answer.header("access-control-allow-origin") == [], (origin, sent[:40])
            assert answer.header("vary") == ["Origin"]
    assert await dump_state(operators) == before


# By field of ui_config: values that must not reach a customer's page.
LOOKS: dict[str, tuple[Any, ...]] = {
    "privacy_url": (
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)//https://",
        " https://x.example",
        "https://x.example\nhttps://y",
        "https://x .example",
        "data:text/html,x",
        "//evil.example",
        "/privacy",
        "https:/x",
        "https://x\u202e",
        "ftp://x.example",
        "vbscript:https://x",
        "https://" + "x" * 500,
        ["https://x.example"],
    ),
    "color": (
        "red",
        "#fff",
        "#12345g",
        "#123456;}",
        "url(//evil)",
        "#123456\n",
        "expression(1)",
        "#\uff11\uff12\uff13\uff14\uff15\uff16",
        123456,
    ),
    "position": ("top", "right;", "LEFT", "", 1),
    "theme": ("url(x)", "Light", "light ", True),
    "language": ("en-US-x", "javascript", "e\n", "../", "en_GB", "é1"),
    "z_index": (-1, 10**9, 1.5, "1", True, "1;position:fixed", 10**400),
    "title": ("", "x" * 61, "a\x00", "a\nb", "a\x1b[2J", "a\u202eb", "a\u2028", ["x"], {"a": 1}),
    "suggestions": (["x"] * 7, [""], ["a\nb"], "x", [["x"]], [1], ["x" * 81]),
    "greeting": ("", "a\x00b", "x" * 501, 5),
    "notice": ("", "a\nb", "a\u202eb", "x" * 121, ["x"]),
    "onclick": ("alert(1)",),
    "__proto__": ({"a": 1},),
    "constructor": ("x",),
}


async def test_looks(site: Site, operators: Database) -> None:
    """An invalid text, colour or address is refused with its location, not its content."""
    desk = await make_desk(site.live, operators, site.slug)
    tried = [(name, value) for name, values in LOOKS.items() for value in values]
    assert len(tried) >= 60
    before = await dump_state(operators)
    for name, value in tried:
        # Not orjson, which refuses some of these numbers.
        body = json.dumps({"ui_config": {name: value}})
        answer = await desk.ask("PATCH", f"/tenants/{site.slug}", tag="*", content=body)
        assert answer.status_code == 422, (name, value, answer.text)
        assert answer.json()["detail"] == "invalid_request"
        if isinstance(value, str) and len(value) > 4:
            assert value not in answer.text
    assert await dump_state(operators) == before


SLUGS = (
    "{slug}",
    "{upper}",
    "{slug}%20",
    "%20{slug}",
    "{slug}%09",
    "{slug}.",
    "{slug}%2e",
    "{slug};",
    "{slug}%00",
    "{slug}%0a",
    "{slug}%2f",
    "{slug}%5c",
    "{slug}'--",
    "{slug}%25",
    "{cut}_",
    "{cut}%25",
    "*",
    "%2a",
    "..%2f{slug}",
    "{own}%2f..%2f{slug}",
    "{own};{slug}",
    "{own},{slug}",
    "{own}%2c{slug}",
    "{own}%00{slug}",
    "{own}%0a{slug}",
    "{id}",
)


@pytest.mark.settings(rate_limit_admin_denied_ip="off")
async def test_slugs(live_server: Live, operators: Database) -> None:
    """Edge case 36: no spelling of a slug reveals to another tenant's key whether it exists."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    await other.send("a secret of the other shop")
    desk = await make_desk(live_server, operators, own.slug)
    before = await dump_state(operators)

    async def ask(
        spelling: str, slug: str, identifier: str, method: str, rest: str
    ) -> tuple[int, str]:
        fields = {"slug": slug, "upper": slug.upper(), "cut": slug[:-1], "own": own.slug}
        path = spelling.format(id=identifier, **fields) + rest
        answer = await desk.ask(method, f"/tenants/{path}", tag="*")
        return answer.status_code, re.sub(r'"request_id":"[^"]*"', "", answer.text)

    rests = ("", "/domains", "/knowledge", "/conversations", "/visitor-keys", "/sign-out")
    for spelling, rest in itertools.product(SLUGS, rests):
        method = "POST" if rest == "/sign-out" else "GET"
        there = await ask(spelling, other.slug, other.tenant_id, method, rest)
        missing = await ask(spelling, "shop-0", "0" * 8 + other.tenant_id[8:], method, rest)
        assert there == missing, (spelling, rest)
        assert there[0] in {404, 405, 422}, (spelling, rest)
        assert "secret" not in there[1]
    for name in ("tenant", "slug", "tenant_id"):
        for path in ("/audit", "/tenants", f"/tenants/{own.slug}/conversations"):
            answers = [
                await desk.ask("GET", f"{path}?{name}={quote(slug)}")
                for slug in (other.slug, "shop-0")
            ]
            bodies = {re.sub(r'"request_id":"[^"]*"', "", one.text) for one in answers}
            assert len(bodies) == 1, (path, name)
            assert answers[0].status_code in {404, 422}, (path, name)
    assert await dump_state(operators) == before
