"""Requests that other servers might parse differently are refused in every spelling."""

import asyncio
import itertools
import re
from urllib.parse import quote

import pytest

from factories import Live, Site
from hlas.http.gate import Gate
from lane import raw
from raw_http import Answer, connect, exchange, request

SMUGGLED = request("GET", "/health", "X-Smuggled: yes")
UPGRADES = {
    "any token": ("Connection: Upgrade", "Upgrade: foo"),
    "websocket": ("Connection: keep-alive, Upgrade", "Upgrade: websocket"),
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "Proxy-Connection": ("Proxy-Connection: upgrade", "Upgrade: foo"),
    "two Connection headers": ("Connection: keep-alive", "Connection: UPGRADE", "Upgrade: foo"),
}
ROUTES = (
    ("GET", "/health"),
    ("GET", "/nothing"),
    ("POST", "/widget/session"),
    ("POST", "/widget/messages"),
    ("DELETE", "/admin/tenants/x"),
)


async def read_statuses(url: str, *packets: bytes) -> tuple[list[int], bytes]:
    """The statuses of all responses until the server closes, each packet sent separately."""
    reader, writer = await connect(url)
    for packet in packets:
        writer.write(packet)
        await writer.drain()
        await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        received = await reader.read()
    writer.close()
    return [int(code) for code in re.findall(rb"HTTP/1\.1 ([0-9]+)", received)], received


def is_invalid_http(answer: Answer) -> bool:
    """A 400 in our format, with security headers, as the last response."""
    return (
        (answer.status, answer.closed) == (400, True)
        and answer.raw.count(b"HTTP/1.1 ") == 1
        and set(answer.json) == {"detail", "message", "request_id"}
        and answer.json["detail"] == "invalid_http"
        and answer.json["request_id"] == answer.headers["x-request-id"]
        and answer.headers["connection"] == "close"
        and answer.headers["x-content-type-options"] == "nosniff"
        and "content-security-policy" in answer.headers
    )


async def test_upgrade(live_server: Live) -> None:
    """Edge case 46: 400 and closed on every route; what follows is never parsed as a request."""
    for (method, path), headers in itertools.product(ROUTES, UPGRADES.values()):
        head = request(method, path, *headers, f"Content-Length: {len(SMUGGLED)}")
        for packets in ((head + SMUGGLED,), (head, SMUGGLED)):
            answer = await exchange(live_server.url, *packets)
            assert is_invalid_http(answer), (method, path, headers, answer.raw)
    answer = await exchange(live_server.url, request("CONNECT", "hlas.test:443") + SMUGGLED)
    assert is_invalid_http(answer)


async def test_upgrade_is_logged(live_server: Live) -> None:
    """A request refused by the parser is logged and counted as well."""
    answer = await exchange(live_server.url, request("GET", "/health", *UPGRADES["any token"]))
    lines = [
        line
        for line in live_server.events("request")
        if line["request_id"] == answer.json["request_id"]
    ]
    assert [(line["route"], line["status"]) for line in lines] == [("unmatched", 400)]
    metrics = live_server.app.state.services.metrics
    metrics.hand_over()
    labels = {"method": "OTHER", "route": "unmatched", "status": "400"}
    assert metrics.registry.get_sample_value("hlas_http_requests_total", labels) == 1


async def test_upgrade_behind_others(site: Site) -> None:
    """Edge case 46: earlier requests are answered in order; then 400, then the connection ends."""
    upgrade = request(
        "POST", "/nothing", *UPGRADES["any token"], f"Content-Length: {len(SMUGGLED)}"
    )
    session = request("POST", "/widget/session", f"Origin: {site.origin}", "Content-Length: 2")
    before = raw(site, "stored", "1") + session + b"{}" + request("GET", "/widget/whoami")
    for packets in (
        (before + upgrade + SMUGGLED,),
        (before + upgrade, SMUGGLED),
        (before, upgrade + SMUGGLED),
        (before + upgrade[:40], upgrade[40:] + SMUGGLED[:9], SMUGGLED[9:] + SMUGGLED),
    ):
        statuses, received = await read_statuses(site.live.url, *packets)
        assert statuses == [200, 200, 401, 400], packets
        assert received.endswith(b"}")
    assert len((await site.history())["messages"]) == 1


async def test_ordinary_connection_headers(live_server: Live) -> None:
    """`Connection: upgrade` alone is not an upgrade: proxies send it with every request."""
    for headers in (("Connection: upgrade",), ("Upgrade: foo",), ("Upgrade: foo", "Connection: x")):
        answer = await exchange(live_server.url, request("GET", "/health", *headers), silence=0.2)
        assert (answer.status, answer.closed) == (200, False)


@pytest.mark.parametrize(
    "lines",
    [
        ("GET /health HTTP/1.1",),
        ("GET /health HTTP/1.1", "Host: a", "Host: a"),
        ("GET /health HTTP/1.1", "Host: a", "hOST: b"),
        ("GET /health HTTP/1.0", "Host: a", "Host: b"),
        ("POST /widget/messages HTTP/1.1", "Content-Length: 0"),
        ("POST /widget/messages HTTP/1.1", "Host: a", "Host: b", "Content-Length: 0"),
        ("GET http://a/health HTTP/1.1",),
    ],
)
async def test_host(live_server: Live, lines: tuple[str, ...]) -> None:
    """HTTP/1.1 requires exactly one Host; no version may have two."""
    answer = await exchange(live_server.url, "\r\n".join([*lines, "", ""]).encode())
    assert is_invalid_http(answer), answer.raw


async def test_no_host_in_http_1_0(live_server: Live) -> None:
    """HTTP/1.0 without Host is accepted: load balancers check /health that way."""
    answer = await exchange(live_server.url, b"GET /health HTTP/1.0\r\n\r\n")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


LENGTHS = {
    "4 301 zeros": "0" * 4301,
    "4 301 zeros and a length": "0" * 4301 + "2",
    "20 digits": "0" * 19 + "2",
    "thousands of digits": "9" * 5000,
    "signed": "+2",
    "underscore": "1_0",
    "twice in one": "2, 2",
    "hexadecimal": "0x2",
    "empty": "",
}


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
async def test_length(live_server: Live, length: str) -> None:
    """Edge case 48: an invalid Content-Length is a 400 on every route, never a 500."""
    for method, path in ROUTES:
        sent = request(method, path, f"Content-Length: {length}", body=b"{}")
        answer = await exchange(live_server.url, sent)
        assert is_invalid_http(answer), (method, path, answer.raw)


async def test_two_lengths(live_server: Live) -> None:
    """Edge case 48: two Content-Length headers are refused, even if they are equal."""
    for method, path in ROUTES:
        sent = request(method, path, "Content-Length: 2", "Content-Length: 2", body=b"{}")
        assert is_invalid_http(await exchange(live_server.url, sent)), (method, path)


async def test_longest_length(site: Site) -> None:
    """Up to 19 digits are accepted, also with spaces around them."""
    body = b'{"text":"x"}'
    for length in (f"{len(body):019}", f" {len(body)} "):
        token = f"Authorization: Bearer {site.session['token']}"
        sent = request("POST", "/widget/messages", token, f"Content-Length: {length}", body=body)
        answer = await exchange(site.live.url, sent, silence=0.3)
        assert answer.status == 200, answer.raw


async def test_numbers_in_queries(site: Site) -> None:
    """Edge case 48: numbers with thousands of digits are a 422 in our format."""
    path = f"/widget/conversations/{site.conversation_id}/messages"
    for name, digit in itertools.product(("limit", "after", "offset"), "19-"):
        answer = await site.live.client.get(f"{path}?{name}={digit * 5000}", headers=site.headers())
        assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request"), name


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Retry-After", 200),
        ("Content-Range", 200),
        ("Max-Forwards", 200),
        ("X-Forwarded-For", 200),
        ("Idempotency-Key", 400),
    ],
)
async def test_numbers_in_headers(site: Site, header: str, status: int) -> None:
    """Edge case 48: thousands of digits in a header never cause a 500."""
    headers = {**site.headers(), header: "9" * 5000}
    answer = await site.live.client.post("/widget/messages", headers=headers, json={"text": "x"})
    assert answer.status_code == status


CONTROLS = [
    *(f"%{code:02x}" for code in (*range(0x20), 0x7F)),
    *(quote(chr(code)) for code in range(0x80, 0xA0)),
]


async def test_control_characters(site: Site) -> None:
    """Edge case 47: a control character anywhere in a path is a 404 in our format."""
    paths = (
        "/health",
        "/metrics",
        "/widget.js",
        "/widget/session",
        f"/widget/conversations/{site.conversation_id}/messages",
        "/admin/tenants",
        "/console/",
    )
    client, headers = site.live.client, site.headers()
    for path in paths:
        for control in ("%0a", "%0d%0a", "%0A%0A"):
            answer = await client.get(path + control, headers=headers)
            assert (answer.status_code, answer.json()["detail"]) == (404, "not_found"), path
            if path.startswith("/widget/"):
                assert answer.headers["access-control-allow-origin"] == site.origin
            assert answer.json()["request_id"] == answer.headers["x-request-id"]
    answers = await asyncio.gather(*(client.get(f"/health{control}") for control in CONTROLS))
    assert {(answer.status_code, answer.json()["detail"]) for answer in answers} == {
        (404, "not_found")
    }


async def test_bare_control_characters(live_server: Live) -> None:
    """Edge case 47: unencoded control characters are invalid HTTP."""
    for code in (*range(0x01, 0x20), 0x7F, 0x85):
        sent = request("GET", f"/health{chr(code)}")
        answer = await exchange(live_server.url, sent)
        assert answer.status == 400, (code, answer.raw)
        assert answer.raw.count(b"HTTP/1.1 ") == 1


# What an address over its limit gets for each spelling of a limited path: the same refusal, or
# 404.
SPELLINGS = {
    "{path}": 429,
    "{path}?x": 429,
    "{path}?": 429,
    "{encoded}": 429,
    "{slashes}": 429,
    "http://hlas.test{path}": 429,
    "HTTP://other.test{path}?x": 429,
    "{path}%0a": 404,
    "{path}%0d%0a": 404,
    "{path}%00": 404,
    "http://hlas.test{path}%0a": 404,
    "{path}/": 404,
    "{path}%2f": 404,
    "{path};x": 404,
    "{path}%3bx": 404,
    "{path}%3f": 404,
    "{path}%20": 404,
    "{path}%23": 404,
    "/{path}": 404,
    "http://hlas.test/{path}": 404,
    "/.{path}": 404,
    "/x/..{path}": 404,
    "/x%2f..{path}": 404,
    "{upper}": 404,
    "*": 404,
    "{path}#x": 400,
}
LIMITED_ROUTES = (
    ("POST", "/widget/session"),
    ("POST", "/widget/messages"),
    ("POST", "/widget/messages/assistant"),
    ("GET", "/admin/tenants"),
)


def spell(path: str, spelling: str) -> str:
    return spelling.format(
        path=path,
        upper=path.upper(),
        encoded="/" + "".join(f"%{ord(letter):02x}" for letter in path[1:]),
        slashes="/" + path[1:].replace("/", "%2f"),
    )


@pytest.mark.settings(
    rate_limit_session_ip="1/h", rate_limit_messages_ip="1/h", rate_limit_admin_denied_ip="1/h"
)
async def test_no_spelling_passes_a_limit(answered: Site) -> None:
    """Edge case 47: no spelling of a path bypasses the limit of an address."""
    site = answered
    token = f"Authorization: Bearer {site.session['token']}"
    headers = (f"Origin: {site.origin}", token, "Content-Length: 12", "Connection: close")
    # Opening the site's session has used up the first limit; now the others.
    assert (await site.send()).status_code == 200
    reply = await site.live.client.post("/widget/messages/assistant", headers=site.headers())
    assert reply.status_code == 200
    assert (await site.live.client.get("/admin/tenants")).status_code == 401
    for (method, path), spelling in itertools.product(LIMITED_ROUTES, SPELLINGS):
        sent = request(method, spell(path, spelling), *headers, body=b'{"text":"x"}')
        answer = await exchange(site.live.url, sent)
        assert answer.status == SPELLINGS[spelling], (method, path, spelling)
        assert set(answer.json) == {"detail", "message", "request_id"}
    assert len((await site.history())["messages"]) == 2


@pytest.mark.settings(rate_limit_session_ip="3/h", rate_limit_messages_ip="2/h")
async def test_limits_apply_without_the_early_refusal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 47: without the early refusal, the limit of the address still applies."""

    async def pass_on(*_: object) -> None: ...

    monkeypatch.setattr(Gate, "require_room", pass_on)
    client, headers = site.live.client, site.headers()
    opened = [(await client.post("/widget/session?x", headers=headers)).status_code for _ in "123"]
    sent = [
        (await client.post("/widget/messages?x", headers=headers, json={"text": "x"})).status_code
        for _ in "123"
    ]
    assert (opened, sent) == ([200, 200, 429], [200, 200, 429])
