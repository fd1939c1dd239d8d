"""Edge case 34: hostile requests over a real connection: our error format, never a 5xx."""

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from factories import Site
from fuzz.inputs import inputs

# The first strategy is mostly refused by the HTTP parser; the others get further.
VALUES = st.one_of(
    st.binary(max_size=80),
    st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=80).map(
        lambda text: text.encode("latin-1")
    ),
)
HEADERS = [
    b"Origin",
    b"Referer",
    b"Authorization",
    b"Idempotency-Key",
    b"X-Forwarded-For",
    b"X-Request-Id",
    b"Content-Type",
    b"User-Agent",
    b"If-Match",
    b"Cookie",
    b"Accept-Encoding",
    b"Access-Control-Request-Method",
]
USUAL, RARE = [b"GET", b"POST"], [b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS"]
METHODS = st.sampled_from(4 * USUAL + RARE)
CONTROLS = bytes([*range(32), 127])


# Refused keys would be delayed, and with them the requests that follow.
unlimited = pytest.mark.settings(rate_limit_admin_denied_ip="off")


@dataclass
class Client:
    """One blocking connection, reopened when the server has closed it."""

    url: str
    connection: socket.socket | None = None

    def ask(self, request: bytes, *, head: bool) -> tuple[int, bytes]:
        if self.connection is None:
            parts = urlsplit(self.url)
            self.connection = socket.create_connection((parts.hostname, parts.port), timeout=20)
        self.connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._more()
        top, _, body = answer.partition(b"\r\n\r\n")
        lines = top.lower()
        length = int((lines + b"\r\n").partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        while not head and len(body) < length:
            body += self._more()
        if b"connection: close" in lines:
            self.close()
        return int(top[9:12]), body

    def _more(self) -> bytes:
        assert self.connection is not None
        data = self.connection.recv(65536)
        assert data, "closed without an answer"
        return data

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def values(name: str) -> SearchStrategy[bytes]:
    """A header value that the HTTP parser accepts."""
    return inputs(name).map(lambda value: value.translate(None, CONTROLS))


def requests(site: Site) -> SearchStrategy[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]:
    """Method, path, headers and body; most have a valid token, so that they get further."""
    history = f"/widget/conversations/{site.conversation_id}/messages".encode()
    known = [
        b"/widget/session",
        b"/widget/session/refresh",
        b"/widget/whoami",
        b"/widget/messages",
        b"/widget/messages/assistant",
        history,
        b"/admin/tenants",
        b"/console",
        b"/health",
        b"/",
    ]
    rubbish = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
    suffix = st.one_of(
        st.just(b""),
        st.just(b""),
        rubbish.map(lambda text: b"?" + text.encode()),
        rubbish.map(lambda text: b"/" + text.encode()),
        st.sampled_from(
            [b"?limit=1e9", b"?after=-1", b"?limit=1&limit=2", b"/%00", b"/..%2f", b"#"]
        ),
    )
    path = st.builds(lambda first, rest: first + rest, st.sampled_from(known), suffix)
    token = f"Bearer {site.session['token']}".encode()
    real = st.just([(b"Origin", site.origin.encode()), (b"Authorization", token)])
    wild = st.lists(
        st.tuples(
            st.sampled_from(HEADERS),
            st.one_of(VALUES, *(values(name) for name in ("origin", "header", "token"))),
        ),
        max_size=4,
    )
    both = st.builds(lambda one, other: one + other, real, wild)
    headers = st.one_of(real, real, both, wild)
    body = st.one_of(st.just(b""), inputs("json"), inputs("markdown"))
    return st.tuples(METHODS, path, headers, body)


def written(method: bytes, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: hlas.test"]
    # A line break would end the header and start another request: see test_body.py.
    lines += [name + b": " + value.translate(None, b"\r\n\0") for name, value in headers]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", b""]) + body


async def explore(site: Site, examples: int, *, derandomize: bool) -> Counter[int]:
    """The statuses. Every one is below 500, and errors are in our format."""
    client = Client(site.live.url)
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(request=requests(site))
    def ask(request: tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]) -> None:
        status, body = client.ask(written(*request), head=request[0] == b"HEAD")
        statuses[status] += 1
        assert 200 <= status < 500, (request, status)
        if status >= 400 and request[0] != b"HEAD" and not request[1].startswith(b"/console"):
            assert {"detail", "message", "request_id"} <= set(orjson.loads(body)), request

    try:
        await asyncio.to_thread(ask)
    finally:
        client.close()
    return statuses


@unlimited
async def test_requests(site: Site) -> None:
    """150 requests, the same in every run."""
    statuses = await explore(site, 150, derandomize=True)
    assert {200, 404} <= set(statuses), "they get somewhere"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@unlimited
async def test_requests_at_length(site: Site) -> None:
    """20 000 requests, different in every run."""
    statuses = await explore(site, 20_000, derandomize=False)
    print(f"{sum(statuses.values())} requests: {dict(sorted(statuses.items()))}")
