"""Bodies and requests that are too large, hostile or not valid HTTP."""

import asyncio
import itertools

import httpx
import pytest

import log_scan
from factories import Live, Site
from hlas.store.db import Database
from raw_http import Answer, connect, exchange, request

LARGEST = 4096
ROUTES = ("/widget/session", "/widget/messages")


def is_ours(answer: httpx.Response) -> bool:
    """The common error format, with the request id of the header."""
    body = answer.json()
    wanted = {"detail", "message", "request_id"}
    extra = {"errors"} if body["detail"] == "invalid_request" else set()
    return set(body) == wanted | extra and body["request_id"] == answer.headers["x-request-id"]


async def rows(operators: Database) -> tuple[int, int]:
    found = await operators.one(
        "select (select count(*) from messages) as m, (select count(*) from conversations) as c"
    )
    assert found is not None
    return found["m"], found["c"]


def head(site: Site, route: str, framing: str) -> bytes:
    return request(
        "POST",
        route,
        f"Origin: {site.origin}",
        f"Authorization: Bearer {site.session['token']}",
        "Content-Type: application/json",
        framing,
    )


HOSTILE = {
    "lone surrogate": b'{"FIELD": "\\ud800"}',
    "NUL": b'{"FIELD": "a\\u0000b"}',
    "NUL in metadata": b'{"FIELD": "x", "metadata": {"a\\u0000": 1}}',
    "NaN": b'{"FIELD": "x", "metadata": {"a": NaN}}',
    "1e999": b'{"FIELD": "x", "metadata": {"a": 1e999}}',
    "5 000-digit integer": b'{"FIELD": "x", "metadata": {"a": ' + b"9" * 5000 + b"}}",
    "64-bit overflow": b'{"FIELD": "x", "metadata": {"a": 18446744073709551615}}',
    "deep array": b'{"FIELD": "x", "metadata": {"a": ' + b"[" * 25_000 + b"]" * 25_000 + b"}}",
    "deep object": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "UTF-16": '{"FIELD": "x"}'.encode("utf-16"),
    "UTF-8 BOM": b"\xef\xbb\xbf{}",
    "not UTF-8": b'{"FIELD": "\xff\xfe"}',
    "truncated": b'{"FIELD": "x',
    "array": b"[]",
    "text": b'"x"',
    "number": b"5",
    "null": b"null",
    "rubbish": b"\x00\x01\x02",
    "number for text": b'{"FIELD": 5}',
    "object for text": b'{"FIELD": {}}',
    "unknown field": b'{"FIELD": "x", "tenant_id": "x"}',
    "array for metadata": b'{"FIELD": "x", "metadata": []}',
    "control character": b'{"FIELD": "\\u0000"}',
}


async def test_hostile_json(site: Site, operators: Database) -> None:
    """Edge case 34: a 4xx in our format on both routes, nothing echoed, nothing stored."""
    before = await rows(operators)
    routes = (("/widget/session", b"visitor_id"), ("/widget/messages", b"text"))
    for (name, hostile), (route, field) in itertools.product(HOSTILE.items(), routes):
        body = hostile.replace(b"FIELD", field)
        headers = {**site.headers(), "Content-Type": "application/json"}
        answer = await site.live.client.post(route, headers=headers, content=body)
        assert answer.status_code == 422, (name, route, answer.text)
        assert is_ours(answer)
        assert set(answer.json()["errors"][0]) == {"loc", "type"}
        assert answer.headers["access-control-allow-origin"] == site.origin
    assert await rows(operators) == before


async def test_depth_of_100_000(site: Site, operators: Database) -> None:
    """Edge case 34: nesting of 100 000 within the allowed size is refused without a crash."""
    for body in (b"[" * 60_000, b'{"text":' + b"[" * 60_000):
        answer = await site.live.client.post(
            "/widget/messages", headers=site.headers(), content=body
        )
        assert answer.status_code == 422
    body = b"[" * 100_000 + b"]" * 100_000
    answer = await site.live.client.post("/widget/messages", headers=site.headers(), content=body)
    assert answer.status_code == 413
    assert (await site.send("still there")).status_code == 200


async def test_no_body(site: Site) -> None:
    """Edge case 34: a session needs no body, a message does."""
    opened = await site.live.client.post("/widget/session", headers={"Origin": site.origin})
    assert opened.status_code == 200
    answer = await site.live.client.post("/widget/messages", headers=site.headers())
    assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request")
    assert is_ours(answer)


@pytest.mark.settings(max_json_body_bytes=LARGEST)
async def test_content_length(site: Site, operators: Database) -> None:
    """Edge case 32: Content-Length one byte over is refused unread; exactly the limit passes."""
    frame = len(b'{"text":"x","metadata":{"a":""}}')
    for size, status in ((LARGEST, 200), (LARGEST + 1, 413)):
        body = b'{"text":"x","metadata":{"a":"' + b"y" * (size - frame) + b'"}}'
        answer = await site.live.client.post(
            "/widget/messages", headers=site.headers(), content=body
        )
        assert answer.status_code == status, answer.text
    assert is_ours(answer)
    assert answer.json()["detail"] == "payload_too_large"
    assert answer.headers["connection"] == "close"
    assert (await rows(operators))[0] == 1
    blocked = site.live.events("blocked")
    assert [(line["reason"], line["route"]) for line in blocked] == [
        ("payload_too_large", "/widget/messages")
    ]
    assert blocked[0]["request_id"] == answer.headers["x-request-id"]


@pytest.mark.settings(max_json_body_bytes=LARGEST)
async def test_declared_and_never_sent(site: Site) -> None:
    """Edge case 32: a Content-Length over the limit is refused before any byte of the body."""
    for route in ROUTES:
        answer = await exchange(site.live.url, head(site, route, f"Content-Length: {10**12}"))
        assert (answer.status, answer.closed) == (413, True)
        assert answer.json["detail"] == "payload_too_large"
        assert answer.headers["access-control-allow-origin"] == site.origin


@pytest.mark.settings(max_json_body_bytes=LARGEST)
async def test_chunked(site: Site) -> None:
    """Edge case 32: chunks are refused as soon as they exceed the limit; the rest is unread."""
    for route in ROUTES:
        reader, writer = await connect(site.live.url)
        writer.write(head(site, route, "Transfer-Encoding: chunked"))
        for _ in range(5):
            writer.write(b"%x\r\n%s\r\n" % (1024, b"[" * 1024))
            await writer.drain()
        answer = Answer(await asyncio.wait_for(reader.read(), 30), closed=True)
        writer.close()
        assert answer.status == 413
        assert answer.json["detail"] == "payload_too_large"
        assert answer.headers["connection"] == "close"


@pytest.mark.settings(max_json_body_bytes=LARGEST)
async def test_endless_stream(site: Site) -> None:
    """Edge case 32: a client that sends without end is cut off after a bounded number of bytes."""
    piece = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
    reader, writer = await connect(site.live.url)
    writer.write(head(site, "/widget/messages", "Transfer-Encoding: chunked"))
    sent = 0
    try:
        while sent < 2**28:
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), 30)
            sent += len(piece)
    except ConnectionError:
        pass  # expected
    writer.close()
    reader.feed_eof()
    assert sent < 2**25, "the server reads on and on"


@pytest.mark.settings(max_json_body_bytes=LARGEST)
async def test_refusal_is_readable(site: Site) -> None:
    """Edge case 32: a client that sends all of a large body still receives the 413."""
    for size in (LARGEST + 1, 100_000, 3_000_000) * 3:
        answer = await site.live.client.post(
            "/widget/messages", headers=site.headers(), content=b" " * size
        )
        assert answer.status_code == 413


async def test_text_limit(site: Site, operators: Database) -> None:
    """Edge case 33: 2000 code points pass, including emoji and combining characters; 2001 fail."""
    for letter in ("x", "ž", "🦊"):
        assert (await site.send(letter * 2000)).status_code == 200
        answer = await site.send(letter * 2001)
        assert (answer.status_code, answer.json()["detail"]) == (422, "text_too_long")
    family = "👩\u200d👩\u200d👧"
    assert (await site.send(family * 400)).status_code == 200
    assert (await site.send(family * 401)).status_code == 422
    assert (await site.send("  " + "x" * 2000 + "\n")).status_code == 200
    reasons = {line["reason"] for line in site.live.events("blocked")}
    assert reasons == {"text_too_long"}
    assert (await rows(operators))[0] == 5


async def test_empty_text(site: Site) -> None:
    """Edge case 34: a text that is empty after trimming is invalid_text."""
    for text in ("", " ", "\n\t ", "\u2003"):
        answer = await site.send(text)
        assert (answer.status_code, answer.json()["detail"]) == (400, "invalid_text")
        assert is_ours(answer)


FOREIGN_TYPES = [
    {"Content-Encoding": "gzip"},
    {"Content-Encoding": "identity, gzip"},
    {"Content-Type": "text/plain"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "application/json; charset=utf-16"},
    {"Content-Type": "application/json, text/plain"},
    {"Content-Type": ""},
]


async def test_media_type(site: Site) -> None:
    """Edge case 34: encodings and types other than plain UTF-8 JSON are 415."""
    for headers, route in itertools.product(FOREIGN_TYPES, ROUTES):
        answer = await site.live.client.post(
            route, headers={**site.headers(), **headers}, content=b"{}"
        )
        assert (answer.status_code, answer.json()["detail"]) == (415, "unsupported_media_type")
        assert is_ours(answer)


async def test_plain_media_types(site: Site) -> None:
    """UTF-8 JSON is accepted in every spelling of its type."""
    for kind in (
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
    ):
        answer = await site.live.client.post(
            "/widget/messages",
            headers={**site.headers(), "Content-Type": kind, "Content-Encoding": "identity"},
            content=b'{"text":"media type"}',
        )
        assert answer.status_code == 200


SMUGGLED = {
    "length and chunks": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nG"
    ),
    "chunks and length": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Length: 6\r\n\r\n0\r\n\r\nG"
    ),
    "two lengths": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
        b"Content-Length: 5\r\n\r\n{}xxx"
    ),
    "length list": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 5\r\n\r\n{}xxx"
    ),
    "signed length": (b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}"),
    "negative length": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n{}"
    ),
    "huge length": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"
    ),
    "bad chunk size": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"xyz\r\n{}\r\n"
    ),
    "signed chunk size": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"+2\r\n{}\r\n0\r\n\r\n"
    ),
    "chunk without end": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}XX0\r\n\r\n"
    ),
    "unknown coding": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"
    ),
    "coding twice": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n"
        b"0\r\n\r\n"
    ),
    "obs-fold": b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n",
    "folded coding": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n"
        b"0\r\n\r\n"
    ),
    "NUL in a header": b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: b\x00c\r\n\r\n",
    "CR in a header": b"GET /health HTTP/1.1\r\nHost: a\r\nX-A: b\rc\r\n\r\n",
    "bare LF": b"GET /health HTTP/1.1\nHost: a\n\n",
    "bare LF in a header": b"GET /health HTTP/1.1\r\nHost: a\nX-A: b\r\n\r\n",
    "space before the colon": (
        b"POST /widget/session HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\n{}"
    ),
    "another version": b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
    "unknown method": b"STEAL /health HTTP/1.1\r\nHost: a\r\n\r\n",
    "NUL in the path": b"GET /hea\x00lth HTTP/1.1\r\nHost: a\r\n\r\n",
    "rubbish": b"\r\n\r\nrubbish\r\n\r\n",
}


async def test_smuggling(live_server: Live) -> None:
    """Edge case 34: an ambiguous or invalid request is a 4xx in our format and is closed."""
    answers = await asyncio.gather(
        *(exchange(live_server.url, sent, silence=10) for sent in SMUGGLED.values())
    )
    for name, answer in zip(SMUGGLED, answers, strict=True):
        assert 400 <= answer.status < 500, (name, answer.raw)
        assert answer.raw.count(b"HTTP/1.1 ") == 1, f"{name}: a smuggled request was answered"
        assert answer.closed, name
        assert set(answer.json) == {"detail", "message", "request_id"}, name
        assert answer.json["request_id"] == answer.headers["x-request-id"], name


async def test_large_headers(live_server: Live) -> None:
    """Edge case 35: headers are bounded, in one piece or in many."""
    many = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(100))
    start = b"GET /health HTTP/1.1\r\nHost: a\r\n"
    one = await exchange(live_server.url, start + b"X-A: " + b"a" * 300_000 + b"\r\n\r\n")
    split = await exchange(live_server.url, start, many, b"\r\n")
    for answer in (one, split):
        assert (answer.status, answer.closed) == (431, True)
        assert answer.json["detail"] == "headers_too_large"


async def test_pipelined_rubbish(live_server: Live) -> None:
    """Edge case 34: garbage behind a valid request closes the connection after one response."""
    good = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    answer = await exchange(live_server.url, good + b"\x00rubbish\r\n\r\n")
    assert answer.closed
    assert answer.raw.count(b"HTTP/1.1 ") <= 2
    assert b"HTTP/1.1 400" in answer.raw


async def test_canary(site: Site) -> None:
    """Edge case 41: the log scan detects a logged secret, so that a clean scan is meaningful."""
    text = "a canary that sings"
    await site.send(text, key="canary-key", metadata={"a": "canary-metadata"})
    log_scan.check(b'{"event":"request"}\n')
    for leaked in (text, "canary-key", "canary-metadata", site.session["token"]):
        with pytest.raises(AssertionError):
            log_scan.check(b'{"event":"request","x":"%s"}\n' % leaked.encode())
    for control in (b"\r", b"\x1b", b"\x00"):
        with pytest.raises(AssertionError):
            log_scan.check(b"text%stext\n" % control)
