"""The lane and the framework return the same responses to generated requests."""

import itertools
import random
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import orjson
import pytest

from factories import Site, make_site
from hlas.http.lane import Exchange
from hlas.http.server import Connection
from hlas.store.db import Database

REQUESTS = 240

# The header and the fields of a body that differ in every response.
VARYING = {"date"}
NEW = {"message_id", "token", "conversation_id"}


@dataclass
class Case:
    method: str
    path: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    content: bytes | None = None


def choose(cases: random.Random, site: Site, other: Site, number: int) -> Case:
    """A request that is mostly valid, with one or two invalid or unusual parts."""
    history = f"/widget/conversations/{site.conversation_id}/messages"
    method, path, content = cases.choice(
        [
            ("POST", "/widget/messages", orjson.dumps({"text": f"hello {number}"})),
            ("POST", "/widget/messages", orjson.dumps({"text": f"hello {number}"})),
            ("POST", "/widget/messages/assistant", b""),
            ("POST", "/widget/session", b""),
            ("POST", "/widget/session", orjson.dumps({"visitor_id": "v", "metadata": {"a": 1}})),
            ("POST", "/widget/session/refresh", b""),
            ("GET", "/widget/whoami", None),
            ("POST", history.replace("messages", "person"), b""),
            ("PUT", history.replace("messages", "contact"), b'{"name": "Jana"}'),
            ("PUT", f"/widget/messages/{uuid4()}/rating", b'{"rating": "up"}'),
            ("GET", history, None),
            ("GET", f"{history}?after=0&limit=2", None),
        ]
    )
    headers = [("Origin", site.origin), ("Authorization", f"Bearer {site.session['token']}")]
    if content:
        headers.append(("Content-Type", "application/json"))
    case = Case(method, path, headers, content)
    for _ in range(cases.choice([0, 1, 1, 2])):
        spoil(cases, case, other, number)
    return case


def spoil(cases: random.Random, case: Case, other: Site, number: int) -> None:
    names = dict(case.headers)
    changes: list[tuple[str, Any]] = [
        ("header", ("Idempotency-Key", f"key-{number % 7}")),
        ("header", ("Idempotency-Key", "a b")),
        ("header", ("Idempotency-Key", "")),
        ("header", ("Idempotency-Key", "x" * 300)),
        ("header", ("X-Request-Id", "second")),
        ("header", ("X-Forwarded-For", cases.choice(["203.0.113.9", "nonsense", "::1"]))),
        ("header", ("X-Forwarded-Proto", "https")),
        ("header", ("Content-Encoding", cases.choice(["gzip", "identity"]))),
        ("header", ("Content-Type", cases.choice(["text/plain", "application/json; charset=x"]))),
        ("header", ("Origin", other.origin)),
        ("header", ("X-Twice", "1")),
        ("without", "Origin"),
        ("without", "Authorization"),
        ("replace", ("Origin", cases.choice([other.origin, "null", "https://evil.example", "x"]))),
        ("replace", ("Authorization", cases.choice(["Bearer", "Basic a", "Bearer a.b.c", ""]))),
        ("replace", ("Authorization", f"Bearer {other.session['token']}")),
        ("body", cases.choice([b"{", b"[]", b"null", b'{"text": " "}', b'{"text": 5}', b"\xff"])),
        ("body", b'{"text": "a", "metadata": {"deep": [[1]]}}'),
        ("body", b'{"text": "a", "more": 1}'),
        ("body", b'{"text": "a", "text": "b"}'),
        ("body", orjson.dumps({"text": "x" * 2001})),
        ("body", b'{"text": "' + b"x" * 70_000 + b'"}'),
        ("query", cases.choice(["?x", "?limit=0", "?after=-1", "?after=1&offset=1", "?limit=a"])),
        ("path", cases.choice(["/", "%0a", ";x", "%2f"])),
        ("method", cases.choice(["GET", "POST", "PUT", "DELETE"])),
    ]
    kind, what = cases.choice(changes)
    match kind:
        case "header":
            case.headers.append(what)
        case "without":
            case.headers = [header for header in case.headers if header[0] != what]
        case "replace" if what[0] in names:
            case.headers = [what if header[0] == what[0] else header for header in case.headers]
        case "body" if case.method in {"POST", "PUT"}:
            case.content = what
        case "query":
            case.path = case.path.partition("?")[0] + quote(what, safe="?=&")
        case "path":
            case.path += what
        case "method":
            case.method = what


async def ask(site: Site, case: Case, number: int) -> httpx.Response:
    headers = [("X-Request-Id", f"request-{number}"), *case.headers]
    return await site.live.client.request(
        case.method, case.path, headers=headers, content=case.content
    )


def shape(answer: httpx.Response) -> Any:
    """Status, all headers and the whole body, except what differs in every response."""
    headers = sorted(
        (name, value) for name, value in answer.headers.multi_items() if name not in VARYING
    )
    try:
        body = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return answer.status_code, headers, answer.content
    if answer.status_code == 200 and isinstance(body, dict):
        if NEW & body.keys():
            headers = [header for header in headers if header[0] != "content-length"]
        body = {name: "new" if name in NEW else value for name, value in body.items()}
    return answer.status_code, headers, body


def read_log(site: Site, number: int, seen: int) -> list[dict[str, Any]]:
    """The log lines of a request since the last call, without what differs each time."""
    varying = {"time", "duration_ms", "conversation_id"}
    return [
        {name: value for name, value in line.items() if name not in varying}
        for line in site.live.events()[seen:]
        if line.get("request_id") == f"request-{number}"
    ]


@pytest.mark.settings(trusted_proxies="127.0.0.1/32")
async def test_the_same_both_ways(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status, headers, body and log lines do not depend on which of the two handles it."""
    other = await make_site(site.live, operators)
    cases, statuses, is_plain = random.Random(13), set(), Connection._is_plain
    started = itertools.count()
    start = Exchange.start

    def counted(self: Exchange) -> None:
        next(started)
        start(self)

    monkeypatch.setattr(Exchange, "start", counted)
    for number in range(REQUESTS):
        case = choose(cases, site, other, number)
        shapes, logs = [], []
        # The key is used once before, so that both replay it or both conflict.
        await ask(site, case, 10_000 + number)
        for plain in (is_plain, lambda _: False):
            monkeypatch.setattr(Connection, "_is_plain", plain)
            seen = len(site.live.events())
            shapes.append(shape(await ask(site, case, number)))
            logs.append(read_log(site, number, seen))
        monkeypatch.setattr(Connection, "_is_plain", is_plain)
        assert shapes[0] == shapes[1], case
        assert logs[0] == logs[1], case
        assert logs[0], "nothing was logged"
        statuses.add(shapes[0][0])
    assert next(started) > REQUESTS, "most are in the lane, the one before and one of the two"
    assert {200, 400, 401, 403, 404, 405, 413, 415, 422} <= statuses
