"""Attacks on limits: other paths, other addresses, values larger than allowed."""

import itertools
import re
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from attacks import LAST, Attack, attack, fire
from factories import Site
from hlas.limits.addresses import TrustedProxies, client_address
from hlas.store.db import Database
from hlas.tenants import tenants
from lane import raw
from raw_http import request

# Spellings of a path that a proxy, a file system or another framework might normalise.
SPELLINGS = (
    "{path}%252f",
    "{path}%252e",
    "{path}/.",
    "{path}/..",
    "{path}/%2e",
    "{path}/x/..",
    "{path}/..;/",
    "{path};jsessionid=1",
    "{path};/",
    "{path}%5c",
    "{path}\\",
    "{path}.json",
    "{path}.",
    "{path}~",
    "{path}*",
    "{path}!",
    "{path}'",
    "{path}$",
    "{path}|",
    "{path}:80",
    "{path}@",
    "{path}%c0%af",
    "{path}%c0%80",
    "{path}%e0%80%af",
    "{path}%ff",
    "{path}%ef%bc%8f",
    "{path}%e2%80%8b",
    "{path}%ef%bb%bf",
    "{path}%cc%87",
    "{path}%u002f",
    "{path}%",
    "{path}%2",
    "{path}%zz",
    "/..{path}",
    "/../..{path}",
    "/%2e{path}",
    "/%2e%2e{path}",
    "/..;{path}",
    "/;{path}",
    "/;x{path}",
    "/\\{path}",
    "///{path}",
    "/%2f{path}",
    "/x/%2e%2e{path}",
    "/x;/..{path}",
    "/%c5%bf{path}",
    "{title}",
    "{first}%2f..%2f{rest}",
    "{first}/;/{rest}",
    "{first}//{rest}",
    "{first}/./{rest}",
    "{first}%5c{rest}",
    "{first}%e2%88%95{rest}",
    "{fold}",
)
GUARDED = (
    ("POST", "/widget/session", 429),
    ("POST", "/widget/messages", 429),
    ("POST", "/widget/messages/assistant", 429),
    ("GET", "/widget/whoami", 429),
    ("GET", "/metrics", 429),
    ("GET", "/admin/tenants", 429),
    ("GET", "/console/tenants", 303),
)

# A tenant with that name, and every page of the console: both authenticate first.
ASKS = re.compile(r"/console/|/admin/tenants/[^/]+$")


def spell(path: str, spelling: str) -> str:
    first, _, rest = path[1:].partition("/")
    return spelling.format(
        path=path,
        title=path.title(),
        first=f"/{first}",
        rest=rest,
        # The Kelvin sign and the long s are case-folded to ASCII letters.
        fold=path.replace("s", "%c5%bf").replace("k", "%e2%84%aa"),
    )


def make_spellings(site: Site) -> list[Attack]:
    """Every spelling once; those that do not change the path are omitted."""
    headers = (f"Origin: {site.origin}", f"Authorization: Bearer {site.session['token']}")
    found: dict[str, Attack] = {}
    for (method, path, over), spelling in itertools.product(GUARDED, SPELLINGS):
        target = spell(path, spelling)
        body = b'{"text":"x"}' if method == "POST" else b""
        sent = request(method, target, *headers, f"Content-Length: {len(body)}", body=body)
        status = over if target == path or ASKS.match(unquote(target)) else 404
        name = f"{method} {target}"
        found[name] = attack(name, sent + LAST, says=[status, 200])
    return list(found.values())


@pytest.mark.settings(
    rate_limit_session_ip="1/h",
    rate_limit_messages_ip="1/h",
    rate_limit_reads_ip="1/h",
    rate_limit_admin_denied_ip="1/h",
)
async def test_paths(answered: Site) -> None:
    """Edge case 47: no spelling of a path bypasses the limit of its address."""
    site, client = answered, answered.live.client
    assert (await site.send()).status_code == 200
    reply = await client.post("/widget/messages/assistant", headers=site.headers())
    assert reply.status_code == 200
    assert (await client.get("/metrics")).status_code == 200
    assert (await client.get("/admin/tenants")).status_code == 401
    attacks = make_spellings(site)
    assert len(attacks) >= 350
    await fire(site.live.url, attacks)


SPOOFED = "203.0.113.{number}"
# Headers from which some proxies or frameworks take the client's address.
CARRIERS = (
    "X-Forwarded-For: {address}",
    "X-Forwarded-For: {address}, 127.0.0.1",
    "X-Forwarded-For:{address}",
    "X-FORWARDED-FOR: {address}",
    "X_Forwarded_For: {address}",
    "X-Forwarded: for={address}",
    "X-Forwarded-By: {address}",
    "X-Forwarded-Host: {address}",
    "X-Forwarded-Server: {address}",
    "X-Original-Forwarded-For: {address}",
    "X-Original-Host: {address}",
    "X-Original-URL: /health",
    "X-Rewrite-URL: /health",
    "X-HTTP-Method-Override: GET",
    "Forwarded: for={address}",
    'Forwarded: for="[2001:db8::{number}]:4711"',
    "Forwarded-For: {address}",
    "X-Real-IP: {address}",
    "X-Client-IP: {address}",
    "X-Cluster-Client-IP: {address}",
    "X-Remote-IP: {address}",
    "X-Remote-Addr: {address}",
    "X-Originating-IP: {address}",
    "X-ProxyUser-Ip: {address}",
    "True-Client-IP: {address}",
    "CF-Connecting-IP: {address}",
    "CF-Connecting-IPv6: 2001:db8::{number}",
    "Fastly-Client-IP: {address}",
    "Akamai-Client-IP: {address}",
    "Fly-Client-IP: {address}",
    "X-Azure-ClientIP: {address}",
    "X-Envoy-External-Address: {address}",
    "Client-IP: {address}",
    "Remote-Addr: {address}",
    "Via: 1.1 {address}",
    "From: {address}",
    "Host: {address}",
    "Contact: root@{address}",
)


@pytest.mark.settings(rate_limit_messages_ip="3/h")
async def test_spoofed_addresses(site: Site) -> None:
    """Edge case 25: no header of an untrusted client changes its address."""
    for _ in range(3):
        assert (await site.send()).status_code == 200
    attacks = []
    for number, carrier in enumerate(CARRIERS):
        line = carrier.format(address=SPOOFED.format(number=number), number=number)
        sent = raw(site, "x", f"key-{number}")
        if line.startswith("Host: "):
            sent = sent.replace(b"Host: hlas.test", line.encode())
        else:
            sent = sent.replace(b"\r\n", f"\r\n{line}\r\n".encode(), 1)
        attacks.append(attack(line, sent + LAST, says=[429, 200]))
    assert len(attacks) >= 38
    await fire(site.live.url, attacks)
    assert len((await site.history())["messages"]) == 3


# The same visitor, in every notation that a trusted proxy may use.
SAME = {
    "192.0.2.1": (
        "192.0.2.1",
        "192.0.2.1:80",
        "192.0.2.1:0",
        "[192.0.2.1]",
        "[192.0.2.1]:80",
        "::ffff:192.0.2.1",
        "[::ffff:192.0.2.1]",
        "[::ffff:192.0.2.1]:80",
        "::FFFF:C000:0201",
        "0:0:0:0:0:ffff:192.0.2.1",
        "0000:0000:0000:0000:0000:ffff:c000:0201",
        "::ffff:192.0.2.1%eth0",
        "  192.0.2.1  ",
        "\t192.0.2.1",
        "203.0.113.9, 192.0.2.1",
        "unknown, 192.0.2.1",
        ", , 192.0.2.1, ,",
        '"203.0.113.9", 192.0.2.1',
        "[192.0.2.1",
    ),
    "2001:db8::/64": (
        "2001:db8::1",
        "2001:db8::ffff:ffff:ffff:ffff",
        "[2001:db8::2]:443",
        "2001:DB8::3",
        "2001:db8::4%eth0",
        "[2001:db8::5%25eth0]",
        "2001:0db8:0000:0000:0000:0000:0000:0006",
        "2001:db8::192.0.2.7",
    ),
    # Not an address: entries to its left are not trusted, and the proxy itself is limited.
    "127.0.0.1": (
        "192.0.2.001",
        "3221225985",
        "0xC0000201",
        "0300.0.2.1",
        "192.0.513",
        "192.0.2.1.",
        "192.0.2.1 203.0.113.9",
        "192.0.2.1;203.0.113.9",
        "192.0.2.256",
        "١٩٢.0.2.1",
        "for=192.0.2.1",
        "localhost",
        "_hidden",
        "1" * 5000,
        "192.0.2.1]",
    ),
}


@pytest.mark.parametrize(
    ("bucket", "spelling"), [(bucket, one) for bucket, several in SAME.items() for one in several]
)
def test_spellings_of_an_address(bucket: str, spelling: str) -> None:
    """Edge case 26: one address is one bucket, and an invalid one creates no new bucket."""
    trusted = TrustedProxies.parse("127.0.0.0/8")
    found = client_address("127.0.0.1", (spelling,), trusted)
    assert found == bucket


@pytest.mark.settings(rate_limit_session_ip="3/h", rate_limit_messages_ip="3/h")
async def test_rotation(site: Site, operators: Database) -> None:
    """Edge case 21: other origins, keys, conversations, user agents share the address's limit."""
    other = "https://other.example"
    await tenants.add(operators, "Other", "other", [other])
    origins = itertools.cycle((site.origin, other, other.upper(), f"{site.origin}:443"))
    statuses = []
    for number, origin in zip(range(12), origins, strict=False):
        headers = {
            "Origin": origin,
            "User-Agent": f"agent-{number}",
            "X-Request-Id": f"id-{number}",
        }
        answer = await site.live.client.post("/widget/session", headers=headers)
        statuses.append(answer.status_code)
    assert statuses == [200, 200] + [429] * 10


TINY = 5e-324
METADATA: dict[str, tuple[bytes, int]] = {
    "numbers that grow in the database": (orjson.dumps({"a": [TINY] * 500}), 422),
    "one of them": (b'{"a":1e-300}', 422),
    "negative": (b'{"a":-1e-19}', 422),
    "smaller than any number": (b'{"a":1e-400}', 200),
    "zero with an exponent": (b'{"a":0e-300}', 200),
    "small": (b'{"a":1e-17}', 200),
    "escapes count as what they are": (b'{"a":"' + rb"\u0041" * 680 + b'"}', 200),
    "escapes of letters that take more": (b'{"a":"' + rb"\u20ac" * 1400 + b'"}', 422),
    "control characters": (b'{"a":"' + rb"\u0001" * 700 + b'"}', 422),
    "one key often": (b"{" + b'"a":"%b",' % (b"x" * 100) * 100 + b'"a":1}', 200),
    "spaces": (b'{"a":' + b" " * 50_000 + b"1}", 200),
    "33 deep": (b'{"a":' + b"[" * 33 + b"]" * 33 + b"}", 422),
    "33 deep in objects": (b'{"a":' * 34 + b"1" + b"}" * 34, 422),
    "many keys": (orjson.dumps({str(number): 0 for number in range(700)}), 422),
    "2**63": (b'{"a":9223372036854775808}', 422),
    "-2**63": (b'{"a":-9223372036854775808}', 422),
    "1e19": (b'{"a":1e19}', 422),
    "true as a key": (b'{"true":true,"null":null}', 200),
    "prototype": (b'{"__proto__":{"a":1},"constructor":{"prototype":1}}', 200),
    "NUL in a key": (rb'{"\u0000":1}', 422),
    "lone surrogate": (rb'{"a":"\ud800"}', 422),
    "lone surrogate in a key": (rb'{"\udfff":1}', 422),
    "array": (b"[]", 422),
    "text": (b'"a"', 422),
    "trailing comma": (b'{"a":1,}', 422),
    "comment": (b'{"a":1/**/}', 422),
    "byte order mark": (b'\xef\xbb\xbf{"a":1}', 422),
}


async def test_metadata(site: Site, operators: Database) -> None:
    """Edge case 50: metadata is bounded as it is stored, however it is written."""
    session = f"Origin: {site.origin}"
    token = f"Authorization: Bearer {site.session['token']}"
    attacks = []
    for name, (metadata, status) in METADATA.items():
        for path, header, body in (
            ("/widget/messages", token, b'{"text":"x","metadata":%b}' % metadata),
            ("/widget/session", session, b'{"metadata":%b}' % metadata),
        ):
            sent = request("POST", path, header, f"Content-Length: {len(body)}", body=body)
            attacks.append(attack(f"{name} at {path}", sent + LAST, says=[status, 200]))
    assert len(attacks) >= 54
    await fire(site.live.url, attacks)
    for table in ("messages", "conversations"):
        row = await operators.one(f"select max(octet_length(meta::text)) as bytes from {table}")
        assert row is not None
        assert row["bytes"] < 2 * 4096, table


PAGING: dict[str, tuple[int, Any]] = {
    "limit=100&after=2000000000": (200, []),
    "offset=2000000000": (200, []),
    "after=2147483647": (422, None),
    "after=2147483648": (422, None),
    "after=9223372036854775808": (422, None),
    "offset=2147483647": (422, None),
    "after=-1": (422, None),
    "offset=-1": (422, None),
    "after=1.0": (200, [2]),
    "after=1.5": (422, None),
    "after=1e0": (422, None),
    "after=0x1": (422, None),
    "after=%2b1": (200, [2]),
    "after=+1": (200, [2]),
    "after=1_0": (200, []),
    "after=%EF%BC%91": (422, None),
    "after=": (422, None),
    "after=null": (422, None),
    "after=true": (422, None),
    "after=NaN": (422, None),
    "after=1%00": (422, None),
    "after=1;after=2": (422, None),
    "after=0&after=1": (200, [2]),
    "after[]=1": (422, None),
    "after%5B%5D=1": (422, None),
    "AFTER=1": (422, None),
    "limit=0": (422, None),
    "limit=101": (422, None),
    "limit=1&limit=100": (200, [1, 2]),
    "limit=100&limit=1000": (422, None),
    "limit=1": (200, [1]),
    "offset=1&after=0": (422, None),
    "tenant_id=x": (422, None),
    "conversation_id=x": (422, None),
    "&&&": (200, [1, 2]),
    "=1": (422, None),
}


async def test_paging(site: Site) -> None:
    """Edge case 48: any number returns a page of the token's own messages or a 422."""
    for text in ("one", "two"):
        assert (await site.send(text)).status_code == 200
    path = f"/widget/conversations/{site.conversation_id}/messages"
    for query, (status, seqs) in PAGING.items():
        answer = await site.live.client.get(f"{path}?{query}", headers=site.headers())
        assert answer.status_code == status, (query, answer.text)
        if status == 200:
            assert [one["seq"] for one in answer.json()["messages"]] == seqs, query
        else:
            assert answer.json()["detail"] == "invalid_request", query
