"""Creating messages over HTTP.

Seen failing with these defects planted: hashes not compared (1, 3, 11), the response stored through
jsonb (15), the key looked up without its conversation (10), no event for a replay (19), text hashed
before it is trimmed (11), the key parsed without its quotes (13).
"""

import asyncio
import io
from collections import Counter
from typing import Any

import httpx
import orjson
import pytest

from factories import Live, Site, make_settings, make_site, run_out_of_patience, serve_app
from hlas.store import writer
from hlas.store.db import Database, connect, log_in
from hlas.store.logins import OPERATOR, Logins

REPLAYED = "idempotent-replayed"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts, because these tests are not about time."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 60.0)


async def stored(operators: Database) -> list[dict[str, Any]]:
    rows = await operators.all(
        "select id::text, tenant_id::text, conversation_id::text, seq, role, content, meta,"
        " created_at from messages order by tenant_id, conversation_id, seq"
    )
    return [dict(row) for row in rows]


async def texts(operators: Database) -> list[str]:
    return [row["content"] for row in await stored(operators)]


async def keys(operators: Database) -> int:
    row = await operators.one("select count(*) as n from idempotency_keys")
    assert row is not None
    return int(row["n"])


async def post(site: Site, body: bytes, *headers: tuple[str, str]) -> httpx.Response:
    """A request as it is given, with headers as they are given."""
    answer: httpx.Response = await site.live.client.post(
        "/widget/messages",
        content=body,
        headers=[*site.headers(Content_Type="application/json").items(), *headers],
    )
    return answer


async def raw_post(
    site: Site, keys: list[bytes]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request byte by byte: no client library sends what some of these tests need."""
    address = httpx.URL(site.live.url)
    assert address.port is not None
    reader, sender = await asyncio.open_connection(address.host, address.port)
    given = [(name.encode(), value.encode()) for name, value in site.headers().items()]
    given += [(b"Idempotency-Key", key) for key in keys]
    given += [(b"Host", b"a"), (b"Content-Length", b"14"), (b"Connection", b"close")]
    given.append((b"Content-Type", b"application/json"))
    lines = [b"POST /widget/messages HTTP/1.1", *(b"%b: %b" % header for header in given)]
    sender.write(b"\r\n".join([*lines, b"", b'{"text": "hi"}']))
    await sender.drain()
    return reader, sender


def outcomes(live: Live) -> Counter[str]:
    names = [event["event"] for event in live.events()]
    return Counter(name.removeprefix("idempotency_") for name in names if "idempotency" in name)


async def test_same_key_once(site: Site, operators: Database) -> None:
    """Edge case 1: 32 concurrent posts, same key and payload: one row, 32 equal bodies."""
    answers = await asyncio.gather(*(site.send("hi", key="k") for _ in range(32)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    replayed = [answer.headers.get(REPLAYED) for answer in answers]
    assert (replayed.count("true"), replayed.count(None)) == (31, 1)
    assert answers[0].json()["message_id"] == (await stored(operators))[0]["id"]
    assert await texts(operators) == ["hi"]


async def test_mixed_payloads(site: Site, operators: Database) -> None:
    """Edge case 3: 32 posts, one key, mixed payloads: one row; its equals replay, others 409."""
    answers = await asyncio.gather(
        *(site.send(f"text {number % 4}", key="k") for number in range(32))
    )
    (row,) = await stored(operators)
    for number, answer in enumerate(answers):
        if row["content"] == f"text {number % 4}":
            assert answer.status_code == 200
            assert answer.json()["message_id"] == row["id"]
        else:
            assert (answer.status_code, answer.json()["detail"]) == (
                409,
                "idempotency_key_conflict",
            )
            # Nothing of the stored request is revealed.
            assert row["id"] not in answer.text
            assert row["content"] not in answer.text
    assert Counter(answer.status_code for answer in answers) == {200: 8, 409: 24}


async def test_conflict(site: Site, operators: Database) -> None:
    """Same key, other text or metadata: 409 with a request id; the stored message stands."""
    first = await site.send("hi", key="k", metadata={"a": 1})
    for text, number in (("ho", 1), ("hi", 2)):
        answer = await site.send(text, key="k", metadata={"a": number})
        assert answer.status_code == 409
        body = answer.json()
        assert body["detail"] == "idempotency_key_conflict"
        assert body["request_id"] == answer.headers["x-request-id"]
        assert answer.headers["access-control-allow-origin"] == site.origin
        assert REPLAYED not in answer.headers
    again = await site.send("hi", key="k", metadata={"a": 1})
    assert again.content == first.content
    assert await texts(operators) == ["hi"]


async def test_no_key(site: Site, operators: Database) -> None:
    """Edge case 14: without a key every post creates a message."""
    answers = [await site.send("hi") for _ in range(3)]
    assert len({answer.json()["message_id"] for answer in answers}) == 3
    assert all(REPLAYED not in answer.headers for answer in answers)
    assert await texts(operators) == ["hi"] * 3
    assert await keys(operators) == 0
    assert not outcomes(site.live)


async def test_client_gone_after_commit(site: Site, operators: Database) -> None:
    """Edge case 8: the client disconnects before it hears back; the retry replays."""
    _, sender = await raw_post(site, [b"k"])
    async with asyncio.timeout(30):
        while not await keys(operators):  # noqa: ASYNC110  # the database tells nobody
            await asyncio.sleep(0.02)
    sender.transport.abort()
    retry = await site.send("hi", key="k")
    assert retry.headers[REPLAYED] == "true"
    assert retry.json()["message_id"] == (await stored(operators))[0]["id"]
    assert await texts(operators) == ["hi"]


REFUSED = [
    (400, "invalid_text", b'{"text": "   "}'),
    (422, "text_too_long", b'{"text": "' + b"x" * 2001 + b'"}'),
    (422, "invalid_request", b'{"text": "hi", "surprise": 1}'),
    (422, "invalid_request", b'{"text": 7}'),
    (422, "invalid_request", b'{"text": "a\\u0000b"}'),
    (422, "invalid_request", b'{"text": "hi"'),
    (422, "invalid_request", b""),
    (413, "payload_too_large", b'{"text": "' + b"x" * 70_000 + b'"}'),
]


@pytest.mark.parametrize(("status", "code", "body"), REFUSED)
async def test_refusals_leave_the_key(
    site: Site, operators: Database, status: int, code: str, body: bytes
) -> None:
    """Edge case 9: 400, 413 and 422 store nothing and leave the key usable."""
    answer = await post(site, body, ("Idempotency-Key", "k"))
    assert (answer.status_code, answer.json()["detail"]) == (status, code)
    assert await keys(operators) == 0
    retry = await site.send("hi", key="k")
    assert retry.status_code == 200
    assert REPLAYED not in retry.headers
    assert outcomes(site.live) == {"miss": 1}


@pytest.mark.settings(rate_limit_messages_conversation="1/s")
async def test_limit_leaves_the_key(site: Site, operators: Database) -> None:
    """Edge case 9: 429 stores nothing and leaves the key usable."""
    await site.send("one", key="one")
    answer = await site.send("two", key="two")
    assert answer.status_code == 429
    assert await keys(operators) == 1
    await asyncio.sleep(int(answer.headers["retry-after"]))
    retry = await site.send("two", key="two")
    assert retry.status_code == 200
    assert REPLAYED not in retry.headers


async def test_failure_leaves_the_key(site: Site, operators: Database, database_url: str) -> None:
    """Edge case 9: a 5xx stores nothing, and the retry is a miss."""
    owner = await connect(database_url)
    await owner.execute("alter table messages add constraint broken check (content <> 'hi')")
    answer = await site.send("hi", key="k")
    assert (answer.status_code, answer.json()["detail"]) == (500, "internal_error")
    assert await keys(operators) == 0
    await owner.execute("alter table messages drop constraint broken")
    await owner.close()
    retry = await site.send("hi", key="k")
    assert retry.status_code == 200
    assert REPLAYED not in retry.headers
    assert [event["seq"] for event in (await site.history())["messages"]] == [1]


async def test_scope(site: Site, operators: Database) -> None:
    """Edge case 10: one key in two tenants and in two conversations of one: independent."""
    other = await make_site(site.live, operators)
    first = await site.send("hi", key="k")
    elsewhere = await other.send("ho", key="k")
    await site.open()
    beside = await site.send("hey", key="k")
    for answer in (first, elsewhere, beside):
        assert answer.status_code == 200
        assert REPLAYED not in answer.headers
    assert sorted(await texts(operators)) == ["hey", "hi", "ho"]
    assert (await other.send("ho", key="k")).content == elsewhere.content
    assert (await site.send("hey", key="k")).content == beside.content


async def test_same_payload_in_other_words(site: Site, operators: Database) -> None:
    """Edge cases 11 and 12: order, spaces, empty metadata and duplicates make no difference."""
    key = ("Idempotency-Key", "k")
    first = await post(site, b'{"text": "hi", "metadata": {"a": 1, "b": {"c": 2, "d": 3}}}', key)
    for body in (
        b'{"metadata": {"b": {"d": 3, "c": 2}, "a": 1}, "text": "  hi\\n"}',
        b'{"text": "ho", "text": "hi", "metadata": {"a": 0, "a": 1, "b": {"c": 2, "d": 3}}}',
    ):
        answer = await post(site, body, key)
        assert (answer.status_code, answer.content) == (200, first.content)
    plain = [
        await post(site, body, ("Idempotency-Key", "p"))
        for body in (
            b'{"text": "hi"}',
            b'{"text": "hi", "metadata": null}',
            b'{"text": "hi", "metadata": {}}',
        )
    ]
    assert len({answer.content for answer in plain}) == 1
    assert [row["meta"] for row in await stored(operators)] == [
        {"a": 1, "b": {"c": 2, "d": 3}},
        {},
    ]
    composed = await site.send("\u00e9", key="nfc")
    decomposed = await site.send("e\u0301", key="nfc")
    assert (composed.status_code, decomposed.status_code) == (200, 409)


@pytest.mark.parametrize(
    "headers",
    [[b""], [b"   "], [b'""'], [b"a" * 256], [b"\xc3\xa9"], [b"a\tb"], [b"a", b"a"], [b"a b"]],
    ids=["empty", "blank", "quoted empty", "256", "non-ascii", "control", "two", "space"],
)
async def test_invalid_keys(site: Site, operators: Database, headers: list[bytes]) -> None:
    """Edge case 13: 400 and nothing stored."""
    reader, sender = await raw_post(site, headers)
    answer = await reader.read()
    sender.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"detail":"invalid_idempotency_key"' in answer
    assert await texts(operators) == []


async def test_valid_keys(site: Site, operators: Database) -> None:
    """Edge case 13: 255 characters pass; a key is the same with and without quotes."""
    assert (await site.send("hi", key="k" * 255)).status_code == 200
    bare, quoted = await site.send("hi", key="abc"), await site.send("hi", key='"abc"')
    assert (bare.content, quoted.headers[REPLAYED]) == (quoted.content, "true")
    assert await texts(operators) == ["hi", "hi"]


async def test_replay_after_restart(
    site: Site, operators: Database, database_url: str, logs: io.BytesIO
) -> None:
    """Edge case 15: the replay is byte-identical, headers included, also after a restart."""
    first = await site.send("hi", key="k")
    row = await operators.one("select response::text as response from idempotency_keys")
    assert row is not None
    assert row["response"].encode() == first.content
    async with serve_app(make_settings(database_url), logs) as restarted:
        site.live = restarted
        again = await site.send("hi", key="k")
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers[REPLAYED] == "true"
    own = {"date", "x-request-id", REPLAYED}
    kept = [{k: v for k, v in answer.headers.items() if k not in own} for answer in (first, again)]
    assert kept[0] == kept[1]


async def test_odd_response_is_kept(site: Site, operators: Database) -> None:
    """Edge case 15: a body of an older release comes back as it is, spaces and order included."""
    await site.send("hi", key="k")
    odd = '{ "message_id" : "1",  "conversation_id":"2", "b":1, "a":1.50 }'
    await operators.execute("update idempotency_keys set response = $1::text::json", odd)
    assert (await site.send("hi", key="k")).text == odd


async def test_replay_changes_nothing(site: Site, operators: Database) -> None:
    """Edge case 16: a replay causes no second message, count or timestamp change."""
    await site.send("hi", key="k")
    query = (
        "select c.xmin::text as c, k.xmin::text as k, m.xmin::text as m, c.last_seq,"
        " c.last_message_at, k.created_at from conversations c, idempotency_keys k, messages m"
    )
    before = [dict(row) for row in await operators.all(query)]
    for _ in range(3):
        assert (await site.send("hi", key="k")).headers[REPLAYED] == "true"
    await site.send("other", key="k")
    assert [dict(row) for row in await operators.all(query)] == before
    metrics = (await site.live.client.get("/metrics")).text
    assert 'hlas_messages_total{role="user"} 1.0' in metrics
    assert 'hlas_idempotency_total{outcome="hit"} 3.0' in metrics


async def test_lock_timeout(site: Site, operators: Database, database_url: str) -> None:
    """Edge case 18: the conversation is busy too long: 409 `idempotency_in_progress`."""
    locker = await log_in(Logins(database_url), OPERATOR)
    await locker.execute("begin; select from conversations for update")
    sending = asyncio.create_task(site.send("hi", key="k"))
    await run_out_of_patience(site.live.app.state.services.writer, 1)
    answer = await sending
    assert (answer.status_code, answer.json()["detail"]) == (409, "idempotency_in_progress")
    assert int(answer.headers["retry-after"]) >= 1
    # A statement that is still under way would store the message once the lock is free.
    async with asyncio.timeout(60):
        while site.live.app.state.services.writer._writing:  # noqa: ASYNC110  # in the background
            await asyncio.sleep(0.005)
    await locker.close()
    retry = await site.send("hi", key="k")
    assert retry.status_code == 200
    assert REPLAYED not in retry.headers
    assert await texts(operators) == ["hi"]
    assert outcomes(site.live) == {"conflict": 1, "miss": 1}


async def test_one_event_each(site: Site) -> None:
    """Edge case 19: exactly one hit, miss or conflict event per keyed request, with its ids."""
    keyed = [site.send(f"t{number % 2}", key=f"k{number % 3}") for number in range(24)]
    answers = await asyncio.gather(*keyed, *(site.send("plain") for _ in range(5)))
    assert outcomes(site.live) == {"miss": 3, "hit": 9, "conflict": 12}
    by_request = {answer.headers["x-request-id"]: answer for answer in answers[:24]}
    for event in site.live.events():
        if event["event"].startswith("idempotency_"):
            answer = by_request.pop(event["request_id"])
            assert (event["tenant_id"], event["conversation_id"]) == (
                site.tenant_id,
                site.conversation_id,
            )
            expected = (
                "conflict"
                if answer.status_code == 409
                else ("hit" if REPLAYED in answer.headers else "miss")
            )
            assert event["event"] == f"idempotency_{expected}"
            assert event["reason"] in {"created", "replayed", "payload_differs"}
    assert not by_request


async def test_stored_as_sent(site: Site) -> None:
    """What was said comes back as it was said, trimmed; unknown words in metadata included."""
    metadata = {"page": "/ceník", "deep": [1, 2.5, None, {"x": True}], "big": 2**53}
    await site.send("  Dobrý den 👋\n", metadata=metadata)
    (message,) = (await site.history())["messages"]
    assert (message["role"], message["content"]) == ("user", "Dobrý den 👋")
    assert message["metadata"] == metadata


async def test_key_of_a_closed_conversation(site: Site, operators: Database) -> None:
    """What was stored is replayed after the conversation was closed; new messages are refused."""
    first = await site.send("hi", key="k")
    await operators.execute("update conversations set status = 'closed'")
    assert (await site.send("hi", key="k")).content == first.content
    refused = await site.send("ho", key="new")
    assert (refused.status_code, refused.json()["detail"]) == (403, "conversation_closed")
    assert await keys(operators) == 1


async def test_body_shape(site: Site) -> None:
    """200 is exactly the two ids, as JSON that must not be cached."""
    answer = await site.send("hi", key="k")
    assert orjson.loads(answer.content).keys() == {"conversation_id", "message_id"}
    assert answer.json()["conversation_id"] == site.conversation_id
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
