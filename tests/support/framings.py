"""Requests that two servers may parse differently; each is one connection.

The bytes behind a refused request would get a response if they were parsed as a request.
"""

import itertools
from collections.abc import Iterator

from attacks import LAST, Attack, attack
from raw_http import request

HEALTH = request("GET", "/health")
# Answered by the application with distinct errors, so that responses can be told apart.
WHOAMI = request("GET", "/widget/whoami")
NOTHING = "/nothing"


def chunked(body: bytes, *headers: str, path: str = NOTHING, method: str = "POST") -> bytes:
    return request(method, path, "Transfer-Encoding: chunked", *headers, body=body)


def head(first: bytes, *lines: bytes) -> bytes:
    """The bytes of a request, from its lines."""
    return b"\r\n".join([first, *lines, b"", b""])


def refused(name: str, sent: bytes) -> Attack:
    """Expect 400 and a closed connection; the bytes that follow are not a request."""
    return attack(name, sent + LAST, says=[400])


CHUNK_SIZES = {
    "signed": b"+2\r\n{}\r\n0\r\n\r\n",
    "negative": b"-2\r\n{}\r\n0\r\n\r\n",
    "0x": b"0x2\r\n{}\r\n0\r\n\r\n",
    "space before": b" 2\r\n{}\r\n0\r\n\r\n",
    "space behind": b"2 \r\n{}\r\n0\r\n\r\n",
    "tab behind": b"2\t\r\n{}\r\n0\r\n\r\n",
    "vertical tab": b"2\x0b\r\n{}\r\n0\r\n\r\n",
    "NUL": b"2\x00\r\n{}\r\n0\r\n\r\n",
    "underscore": b"0_2\r\n{}\r\n0\r\n\r\n",
    "2**64 + 2": b"10000000000000002\r\n{}\r\n0\r\n\r\n",
    "2**64": b"10000000000000000\r\n\r\n",
    "20 F": b"F" * 20 + b"\r\n{}\r\n0\r\n\r\n",
    "quoted": b'"2"\r\n{}\r\n0\r\n\r\n',
    "empty": b"\r\n{}\r\n0\r\n\r\n",
    "decimal point": b"2.0\r\n{}\r\n0\r\n\r\n",
    "full-width digit": "\uff12".encode() + b"\r\n{}\r\n0\r\n\r\n",
    "bare LF": b"2\n{}\r\n0\r\n\r\n",
    "bare CR": b"2\r{}\r\n0\r\n\r\n",
    "LF behind the data": b"2\r\n{}\n0\r\n\r\n",
    "CR behind the data": b"2\r\n{}\r0\r\n\r\n",
    "data too long": b"2\r\n{}}\r\n0\r\n\r\n",
    "data too short": b"3\r\n{}\r\n0\r\n\r\n",
    "last with bare LF": b"2\r\n{}\r\n0\n\n",
    "last with CR CR LF": b"2\r\n{}\r\n0\r\r\n\r\n",
    "extension with bare LF": b"2;a=b\n{}\r\n0\r\n\r\n",
    "extension with NUL": b"2;a=\x00\r\n{}\r\n0\r\n\r\n",
    "extension with CR": b"2;a=\rb\r\n{}\r\n0\r\n\r\n",
    "extension with a quote that stays open": b'2;a="\r\n{}\r\n0\r\n\r\n',
}
EXTENSIONS = {
    "plain": b"2;a=b\r\n{}\r\n0;last\r\n\r\n",
    "quoted": b'2;a="x y"\r\n{}\r\n0\r\n\r\n',
    "leading zeros": b"0000000002\r\n{}\r\n00000\r\n\r\n",
    "upper case": b"A\r\n{        }\r\n0\r\n\r\n",
    "a request in quotes": b'2;a="GET /health HTTP/1.1"\r\n{}\r\n0\r\n\r\n',
}
CODINGS = {
    "identity behind": ("chunked, identity",),
    "identity before": ("identity, chunked",),
    "gzip before": ("gzip, chunked",),
    "twice in one": ("chunked, chunked",),
    "twice": ("chunked", "chunked"),
    "tab behind": ("chunked\t",),
    "identity": ("identity",),
    "empty": ("",),
    "x before": ("xchunked",),
    "x behind": ("chunkedx",),
    "quoted": ('"chunked"',),
    "parameter": ("chunked;q=1",),
    "comma before": (",chunked",),
    "comma behind": ("chunked,",),
    "vertical tab before": ("\x0bchunked",),
    "form feed behind": ("chunked\x0c",),
    "no-break space": ("\xa0chunked",),
    "dotted k": ("chun\u212aed".encode().decode("latin-1"),),
    "two kinds": ("chunked", "identity"),
    "other kind first": ("x", "chunked"),
}
SAME_CODING = ("CHUNKED", "Chunked", "\tchunked", "   chunked   ")
# Content-Length together with chunks is refused, in any order, spelling or number.
LENGTH_AND_CODING = {
    "length first": ("Content-Length: 4", "Transfer-Encoding: chunked"),
    "coding first": ("Transfer-Encoding: chunked", "Content-Length: 4"),
    "length of nothing": ("Content-Length: 0", "Transfer-Encoding: chunked"),
    "upper case": ("CONTENT-LENGTH: 4", "TRANSFER-ENCODING: CHUNKED"),
    "around": ("Content-Length: 4", "Transfer-Encoding: chunked", "Content-Length: 4"),
    "unknown coding": ("Content-Length: 4", "Transfer-Encoding: x"),
    "empty coding": ("Content-Length: 4", "Transfer-Encoding:"),
    "identity": ("Content-Length: 4", "Transfer-Encoding: identity"),
}
TRAILERS = (
    "X-Any: 1",
    "Authorization: Bearer x",
    "Host: evil.example",
    "Content-Length: 5",
    "Transfer-Encoding: chunked",
    "Connection: close",
    "Connection: upgrade\r\nUpgrade: foo",
    "X-Forwarded-For: 203.0.113.7",
    "X-Forwarded-Proto: https",
    "Origin: https://evil.example",
    "Cookie: hlas_console=x",
    "Idempotency-Key: second",
    "Content-Type: text/plain",
    "Content-Encoding: gzip",
    "X-Request-Id: chosen",
    "Expect: 100-continue",
    "no colon",
    " folded: 1",
    "X-Empty:",
    ": no name",
    "X-Line: a\nX-Other: b",
)
LINES = {
    "LF in the request line": head(b"GET /hea\nlth HTTP/1.1", b"Host: a"),
    "CR in the request line": head(b"GET /hea\rlth HTTP/1.1", b"Host: a"),
    "tab for a space": head(b"GET\t/health\tHTTP/1.1", b"Host: a"),
    "space behind the version": head(b"GET /health HTTP/1.1 ", b"Host: a"),
    "space before the method": head(b" GET /health HTTP/1.1", b"Host: a"),
    "space in the path": head(b"GET /hea lth HTTP/1.1", b"Host: a"),
    "lower-case method": head(b"get /health HTTP/1.1", b"Host: a"),
    "lower-case version": head(b"GET /health http/1.1", b"Host: a"),
    "version 1.2": head(b"GET /health HTTP/1.2", b"Host: a"),
    "version 2.0": head(b"GET /health HTTP/2.0", b"Host: a"),
    "version 0.9": head(b"GET /health HTTP/0.9", b"Host: a"),
    "version 1.10": head(b"GET /health HTTP/1.10", b"Host: a"),
    "version 01.1": head(b"GET /health HTTP/01.1", b"Host: a"),
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "version alone": head(b"HTTP/1.1", b"Host: a"),
    "an answer": head(b"HTTP/1.1 200 OK", b"Host: a"),
    "no target": head(b"GET HTTP/1.1", b"Host: a"),
    "relative target": head(b"GET health HTTP/1.1", b"Host: a"),
    "query without a path": head(b"GET ?x HTTP/1.1", b"Host: a"),
    "authority": head(b"GET hlas.test:80 HTTP/1.1", b"Host: a"),
    "absolute without a path": head(b"GET http://hlas.test HTTP/1.1", b"Host: a"),
    "absolute without a host": head(b"GET http:///health HTTP/1.1", b"Host: a"),
    "absolute with a query alone": head(b"GET http://hlas.test?x HTTP/1.1", b"Host: a"),
    "absolute with a user": head(b"GET http://u@@hlas.test/health HTTP/1.1", b"Host: a"),
    "absolute with a bad port": head(b"GET http://hlas.test:x/health HTTP/1.1", b"Host: a"),
    "absolute with a space": head(b"GET http://hlas.test /health HTTP/1.1", b"Host: a"),
    "long method": head(b"G" * 20_000 + b" /health HTTP/1.1", b"Host: a"),
    "method with a dash": head(b"GET-IT /health HTTP/1.1", b"Host: a"),
    "byte beyond ASCII in the path": head(b"GET /\xff HTTP/1.1", b"Host: a"),
    "byte beyond ASCII in the query": head(b"GET /console?\xff HTTP/1.1", b"Host: a"),
    "CONNECT": head(b"CONNECT /health HTTP/1.1", b"Host: a"),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": head(b"DESCRIBE /health RTSP/2.0", b"Host: a"),
}
HEADERS = {
    "space in a name": b"X A: 1",
    "space before the colon": b"X-A : 1",
    "tab before the colon": b"X-A\t: 1",
    "no name": b": 1",
    "no colon": b"X-A",
    "NUL in a name": b"X\x00A: 1",
    "colon in a name": b"X(A): 1",
    "byte beyond ASCII in a name": b"X-\xc5: 1",
    "escape in a value": b"X-A: \x1b[31m",
    "NUL in a value": b"X-A: \x00",
    "CR in a value": b"X-A: a\rX-B: b",
    "LF in a value": b"X-A: a\nX-B: b",
    "folded": b"X-A: a\r\n b",
    "folded by a tab": b"X-A: a\r\n\tb",
    "folded length": b"Content-Length:\r\n 4",
    "space first": b" X-A: 1",
    "length with a line feed": b"Content-Length: 0\nX-B: b",
    "length with NUL": b"Content-Length: 0\x00",
    "coding with a line feed": b"Transfer-Encoding: chunked\nX-B: b",
    "coding and a space": b"Transfer-Encoding : chunked",
    "host and a space": b"Host : b",
    "second host": b"HOST: hlas.test",
    "lengths that differ": b"Content-Length: 0\r\nContent-Length: 4",
    "lengths alike": b"Content-Length: 4\r\nContent-Length: 4",
    "length with a comma": b"Content-Length: 4,",
    "length with a plus": b"Content-Length: +4",
    "length with a fraction": b"Content-Length: 4.0",
    "length with an exponent": b"Content-Length: 4e0",
    "length in full width": "Content-Length: \uff14".encode(),
    "length with a minus": b"Content-Length: -0",
}


def make_refused() -> Iterator[Attack]:
    for name, body in CHUNK_SIZES.items():
        yield refused(f"chunk: {name}", chunked(body, path="/widget/session"))
    for name, values in CODINGS.items():
        lines = [f"Transfer-Encoding: {value}" for value in values]
        body = b"0\r\n\r\n"
        yield refused(f"coding: {name}", request("POST", "/widget/session", *lines, body=body))
    for name, headers in LENGTH_AND_CODING.items():
        sent = request("POST", "/widget/session", *headers, body=b"0\r\n\r\n")
        yield refused(f"length and coding: {name}", sent)
    for trailer in TRAILERS:
        sent = chunked(f"2\r\n{{}}\r\n0\r\n{trailer}\r\n\r\n".encode(), path="/widget/session")
        yield refused(f"trailer: {trailer[:30]}", sent)
    for name, sent in LINES.items():
        yield refused(f"line: {name}", sent)
    for name, line in HEADERS.items():
        sent = head(b"POST /widget/session HTTP/1.1", b"Host: hlas.test", line)
        yield refused(f"header: {name}", sent + b"0\r\n\r\n")


def make_answered() -> Iterator[Attack]:
    """Unusual but unambiguous: exactly one response each, then that of the next request."""
    for name, body in EXTENSIONS.items():
        yield attack(f"extension: {name}", chunked(body) + LAST, says=[404, 200])
    for value in SAME_CODING:
        sent = request("POST", NOTHING, f"Transfer-Encoding: {value}", body=b"0\r\n\r\n")
        yield attack(f"coding: {value!r}", sent + LAST, says=[404, 200])
    for method in ("GET", "HEAD", "OPTIONS", "TRACE", "DELETE", "PUT", "PATCH", "PURGE"):
        for path, status in ((NOTHING, 404), ("/health", 405)):
            said = 200 if (method, path) == ("GET", "/health") else status
            with_length = request(method, path, f"Content-Length: {len(HEALTH)}", body=HEALTH)
            in_chunks = chunked(
                b"%x\r\n%b\r\n0\r\n\r\n" % (len(HEALTH), HEALTH), path=path, method=method
            )
            heads = [0] if method == "HEAD" else []
            for kind, sent in (("length", with_length), ("chunks", in_chunks)):
                yield attack(
                    f"{method} {path} with {kind}", sent + LAST, says=[said, 200], heads=heads
                )
    for value in ("100-Continue", "100-continue, x", "200-ok", "", "100-continue\t"):
        sent = request("POST", NOTHING, f"Expect: {value}", "Content-Length: 2", body=b"{}")
        yield attack(f"Expect: {value!r}", sent + LAST, says=[404, 200])
    yield attack("CR before", b"\r" + HEALTH + LAST, says=[200, 200])
    spaces = head(b"GET  /health  HTTP/1.1", b"Host: hlas.test")
    yield attack("more spaces", spaces + LAST, says=[200, 200])
    yield attack("CR LF before", b"\r\n\r\n" + HEALTH + b"\r\n" + LAST, says=[200, 200])
    yield attack("HTTP/1.0 has no next", head(b"GET /health HTTP/1.0") + LAST, says=[200])
    kept = head(b"GET /health HTTP/1.0", b"Connection: keep-alive")
    yield attack("HTTP/1.0 kept alive", kept + LAST, says=[200])
    in_chunks = head(b"POST /nothing HTTP/1.0", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"
    yield attack("HTTP/1.0 in chunks", in_chunks + LAST, says=[404])
    yield attack(
        "close has no next", request("GET", "/health", "Connection: close") * 2, says=[200]
    )
    yield attack(
        "close among others", request("GET", "/health", "Connection: x, close") * 2, says=[200]
    )
    other = head(b"GET http://evil.example/health HTTP/1.1", b"Host: hlas.test")
    yield attack("absolute, another host", other + LAST, says=[200, 200])
    yield attack("asterisk", request("OPTIONS", "*") + LAST, says=[404, 200])


BAD_BODIES = {
    "chunk size": b"xyz\r\n",
    "chunk end": b"2\r\n{}XX",
    "trailer": b"0\r\nX-Any: 1\r\n\r\n",
}
BAD_HEADS = {
    "upgrade": request("GET", "/health", "Connection: upgrade", "Upgrade: foo"),
    "two hosts": request("GET", "/health", "Host: b"),
    "no path": head(b"GET http://hlas.test HTTP/1.1", b"Host: a"),
    "rubbish": b"\x00rubbish\r\n\r\n",
}


def make_pipelined(session: bytes) -> Iterator[Attack]:
    """An unreadable request behind slow ones: all of them are answered."""
    slow = ((WHOAMI, 401), (session, 200), (HEALTH, 200))
    for (name, bad), count in itertools.product(
        [
            *((name, chunked(body, path="/widget/session")) for name, body in BAD_BODIES.items()),
            *BAD_HEADS.items(),
        ],
        (1, 2, 7, 63),
    ):
        before = list(itertools.islice(itertools.cycle(slow), count))
        sent = b"".join(one for one, _ in before)
        says = [*(said for _, said in before), 400]
        yield attack(f"{name} behind {count}", sent + bad + LAST, says=says)
        yield attack(
            f"{name} behind {count}, in pieces", sent, bad[:-3], bad[-3:] + LAST, says=says
        )
