"""Logs and metrics: one format for all log lines, and a bounded number of metric series."""

import asyncio
import io
import logging
import random
import string
import time
from typing import Any

import asyncpg
import orjson
import pytest

import log_scan
from factories import Live, Site
from hlas import log


async def test_request_event(site: Site) -> None:
    """Every request logs one line with route, status, duration, tenant and conversation."""
    answer = await site.live.client.get(
        f"/widget/conversations/{site.conversation_id}/messages", headers=site.headers()
    )
    await site.live.client.get("/nothing/here")
    line, unmatched = site.live.events("request")[-2:]
    assert line["route"] == "/widget/conversations/{conversation_id}/messages"
    assert (line["method"], line["status"]) == ("GET", 200)
    assert line["duration_ms"] > 0
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["tenant_id"] == site.tenant_id
    assert line["conversation_id"] == site.conversation_id
    assert (unmatched["route"], unmatched["status"]) == ("unmatched", 404)
    assert "tenant_id" not in unmatched


async def test_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line has its own time in milliseconds, also after the clock was set back."""
    stream = io.BytesIO()
    monkeypatch.setattr(log, "_sink", log.Sink(stream))
    moments = {
        1_800_000_000.0: "2027-01-15T08:00:00.000Z",
        1_800_000_000.0005: "2027-01-15T08:00:00.000Z",
        1_800_000_000.25: "2027-01-15T08:00:00.250Z",
        1_800_000_001.25: "2027-01-15T08:00:01.250Z",
        1_799_999_999.999: "2027-01-15T07:59:59.999Z",
    }
    for moment in moments:
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda moment=moment: moment)
            log.warning("tick")
    log.flush()
    lines = [orjson.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["time"] for line in lines] == list(moments.values())


async def test_request_id(live_server: Live) -> None:
    """A valid X-Request-Id is kept, any other is replaced; it is on every response and line."""
    for given, kept in (
        ("abc-1.2_3", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a b", False),
        ("é", False),
        ("a;b", False),
        ("<script>", False),
    ):
        for path, status in (("/health", 200), ("/nothing", 404)):
            answer = await live_server.client.get(
                path, headers=[(b"X-Request-Id", given.encode("latin-1"))]
            )
            assert answer.status_code == status
            found = answer.headers["x-request-id"]
            assert (found == given) is kept
            assert found
            assert live_server.events("request")[-1]["request_id"] == found
            if status == 404:
                assert answer.json()["request_id"] == found
    doubled = [("X-Request-Id", "first"), ("X-Request-Id", "second")]
    answer = await live_server.client.get("/health", headers=doubled)
    assert answer.headers.get_list("x-request-id") == ["first"]


async def test_requests_do_not_mix(site: Site) -> None:
    """Lines of concurrent requests have their own request ids, tenants and conversations."""
    names = [f"request-{number}" for number in range(20)]
    await asyncio.gather(
        *(
            site.live.client.get("/widget/whoami", headers=site.headers(X_Request_Id=name))
            if number % 2
            else site.live.client.get("/health", headers={"X-Request-Id": name})
            for number, name in enumerate(names)
        )
    )
    lines = {line["request_id"]: line for line in site.live.events("request")}
    for number, name in enumerate(names):
        assert lines[name]["route"] == ("/widget/whoami" if number % 2 else "/health")
        assert ("tenant_id" in lines[name]) is bool(number % 2)


async def test_crash(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edge case 41: a crash is a 500, logged with its type and location, never its message."""
    secret = "what the visitor wrote"
    log_scan.hear(secret)

    async def crash(*_: Any) -> None:
        raise ValueError(secret)

    monkeypatch.setattr(site.live.app.state.services.database, "_run", crash)
    answer = await site.live.client.get("/widget/whoami", headers=site.headers())
    assert (answer.status_code, answer.json()["detail"]) == (500, "internal_error")
    assert secret not in answer.text
    (line,) = site.live.events("error")
    assert (line["error_code"], line["error"]) == ("internal_error", "ValueError")
    assert line["where"].startswith("crash:")
    assert line["tenant_id"] == site.tenant_id


async def test_database_errors_stay_inside(site: Site, database_url: str) -> None:
    """Edge case 41: messages of PostgreSQL about a row are neither returned nor logged."""
    owner = await asyncpg.connect(database_url)
    await owner.execute(
        "alter table messages add constraint ck_messages__planted check (content <> 'forbidden')"
    )
    await owner.close()
    answer = await site.send("forbidden")
    assert (answer.status_code, answer.json()["detail"]) == (500, "internal_error")
    assert "planted" not in answer.text
    assert "planted" not in str(site.live.events())


def test_foreign_records(logs: io.BytesIO) -> None:
    """Edge case 41: records of libraries are logged in our format, without their values."""
    log_scan.hear("swordfish")
    logger = logging.getLogger("somebody.else")
    logger.warning("the password is %s", "swordfish")
    logger.error("Task exception was never retrieved\nfuture: <Task exception='swordfish'>")
    logger.error("it broke", exc_info=ValueError("swordfish"))
    log.flush()
    lines = [orjson.loads(line) for line in logs.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["library"] * 3
    assert [line["level"] for line in lines] == ["warning", "error", "error"]
    assert lines[2]["error"] == "ValueError"


def test_control_characters(logs: io.BytesIO) -> None:
    """Edge case 41: a value with CR, LF or ESC is logged as one line of printable characters."""
    log.info("something", value="a\r\nb\x1b[31mc\x00\u2028")
    log.flush()
    assert len(logs.getvalue().splitlines()) == 1
    assert not {0, 13, 27} & set(logs.getvalue())


def test_console_control_characters() -> None:
    """Edge case 41: the same in console format, where a terminal would interpret ESC."""
    stream = io.BytesIO()
    log.configure("info", "console", stream)
    log.info("something", value="a\r\nb\x1b[31mc")
    log.flush()
    log.configure("info", "json", io.BytesIO())
    text = stream.getvalue()
    assert text.count(b"\n") == 1
    assert b"\r" not in text
    assert b"\x1b[31mc" not in text


async def series(live: Live) -> set[str]:
    text = (await live.client.get("/metrics")).text
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


def rubbish(randomness: random.Random) -> str:
    letters = string.ascii_lowercase + string.digits
    return "".join(randomness.choice(letters) for _ in range(randomness.randint(1, 40)))


async def ask(live: Live, method: str, path: str, **headers: str) -> None:
    """Call the application without an HTTP client: 10 000 requests take seconds, not minutes."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "state": {},
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: dict[str, Any]) -> None:
        return None

    await live.app(scope, receive, send)


async def test_requests_add_no_series(site: Site) -> None:
    """Edge case 45: 10 000 random paths, origins and user agents add no metric series."""
    randomness = random.Random(45)
    methods = ("GET", "POST", "DELETE", "PROPFIND", "HEAD", "OPTIONS")
    live = site.live

    async def stranger(number: int) -> None:
        name = rubbish(randomness)
        agent = f"{name}/{number}"
        await ask(live, methods[number % len(methods)], f"/{name}/{number}", user_agent=agent)
        origin = f"https://{name}.{number}.example" if number % 5 == 0 else f"{name}:{number}"
        wanted = {"user_agent": agent}
        wanted |= {"access_control_request_method": name} if number % 2 else {}
        await ask(
            live, "OPTIONS" if number % 2 else "POST", "/widget/session", origin=origin, **wanted
        )

    for number in range(60):
        await stranger(number)
    before = await series(live)
    for number in range(60, 5060):
        await stranger(number)
    await live.client.get("/health")
    new = await series(live) - before
    assert {line for line in new if '"/metrics"' not in line and '"/health"' not in line} == set()
    assert len(live.app.state.services.origins._known) <= 1100


async def test_counters(site: Site) -> None:
    """The metrics of the contract exist and count."""
    await site.send("a counted text", key="counted-key")
    await site.send("a counted text", key="counted-key")
    await site.send("another text", key="counted-key")
    await site.live.client.post("/widget/session", headers={"Origin": "https://evil.example"})
    text = (await site.live.client.get("/metrics")).text
    for line in (
        'hlas_http_requests_total{method="POST",route="/widget/messages",status="200"} 2.0',
        'hlas_http_requests_total{method="POST",route="/widget/messages",status="409"} 1.0',
        'hlas_idempotency_total{outcome="miss"} 1.0',
        'hlas_idempotency_total{outcome="hit"} 1.0',
        'hlas_idempotency_total{outcome="conflict"} 1.0',
        'hlas_sessions_total{outcome="created"} 1.0',
        'hlas_sessions_total{outcome="domain_not_allowed"} 1.0',
        'hlas_messages_total{role="user"} 1.0',
    ):
        assert line in text.splitlines(), line
    assert "hlas_write_batch_size_count" in text
    assert 'hlas_http_request_duration_seconds_bucket{le="0.005",method="POST"' in text
