"""The console's streams, and what people write from there."""

import asyncio
import io
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import orjson
import pytest

from administration import audit_of
from browsers import Browser, make_browser
from factories import Live, Site, make_site, serve_app
from hlas.api import streams
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import serve_process

KEY = re.compile(r'name="key" value="([^"]+)"')
JSON = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}


@asynccontextmanager
async def events_of(
    browser: Browser, path: str, **headers: str
) -> AsyncIterator[AsyncIterator[tuple[str, str]]]:
    """The id (or type) and the data of each event of a stream."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}

    async def read(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
        name = ""
        async for line in response.aiter_lines():
            field, _, value = line.partition(":")
            if field in {"id", "event"}:
                name = value.strip()
            elif field == "data":
                yield name, value.strip()

    async with (
        asyncio.timeout(30),
        browser.client.stream("GET", f"/console{path}", headers=given) as response,
    ):
        assert response.status_code == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield read(response)


async def next_message(events: AsyncIterator[tuple[str, str]]) -> tuple[str, dict[str, Any]]:
    """The cursor after the next message, and the message."""
    async for cursor, data in events:
        frame = orjson.loads(data)
        if frame["type"] == "data-message":
            return cursor, frame["data"]
    raise AssertionError("the stream has ended")


def path_of(site: Site) -> str:
    return f"/tenants/{site.slug}/conversations/{site.conversation_id}"


async def messages_of(site: Site) -> list[tuple[str, str]]:
    history = await site.history()
    return [(one["role"], one["content"]) for one in history["messages"]]


async def post(browser: Browser, path: str, **fields: str) -> httpx.Response:
    """As the page's script sends a form."""
    fields["form_token"] = browser.token
    content = str(httpx.QueryParams(fields))
    return await browser.client.post(f"/console{path}", content=content, headers=JSON)


async def test_the_transcript_streams(site: Site, operators: Database) -> None:
    """Every message once, in order; a stream that was cut goes on after the last event."""
    browser = await make_browser(site.live, operators, site.slug)
    await site.send("one")
    async with events_of(browser, f"{path_of(site)}/stream") as events:
        assert (await next_message(events))[1]["content"] == "one"
        await site.send("two")
        cursor, message = await next_message(events)
        assert (message["seq"], message["content"]) == (2, "two")
    await site.send("three")
    async with events_of(
        browser, f"{path_of(site)}/stream?after=1", Last_Event_ID=cursor
    ) as events:
        assert (await next_message(events))[1]["content"] == "three"
    async with events_of(browser, f"{path_of(site)}/stream?after=1") as events:
        assert (await next_message(events))[1]["content"] == "two"


async def test_only_what_the_key_may_read_streams(live_server: Live, operators: Database) -> None:
    """Another tenant's slug or conversation is a 404, also below the own slug."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    browser = await make_browser(live_server, operators, own.slug)
    for path in (
        f"/tenants/{other.slug}/conversations/stream",
        f"{path_of(other)}/stream",
        f"/tenants/{own.slug}/conversations/{other.conversation_id}/stream",
        f"/tenants/{own.slug}/conversations/{uuid4()}/stream",
    ):
        assert (await browser.get(path)).status_code == 404, path
    own_path = f"/tenants/{own.slug}/conversations/{other.conversation_id}"
    for name, fields in (
        ("messages", {"text": "hello", "key": "k"}),
        ("handler", {"handler": "human"}),
    ):
        answer = await browser.post(f"{own_path}/{name}", **fields)
        assert answer.status_code == 404, name
    assert await messages_of(other) == []


@asynccontextmanager
async def changes_of(browser: Browser, site: Site) -> AsyncIterator["asyncio.Queue[str]"]:
    """The events of a list that come after those of its opening."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    path = f"/tenants/{site.slug}/conversations/stream"
    async with events_of(browser, path) as events:

        async def read() -> None:
            async for name, _ in events:
                queue.put_nowait(name)

        reading = asyncio.create_task(read())
        assert await queue.get() == "change"
        # The worker begins to follow the others, and does not know what it has missed.
        await asyncio.sleep(1.5)
        while not queue.empty():
            queue.get_nowait()
        yield queue
        reading.cancel()


async def test_the_list_streams(live_server: Live, operators: Database) -> None:
    """A change when a conversation of this tenant changes, and of no other."""
    own, other = await make_site(live_server, operators), await make_site(live_server, operators)
    browser = await make_browser(live_server, operators)
    async with changes_of(browser, own) as changes:
        await other.send("hello")
        await asyncio.sleep(1.5)
        assert changes.empty()
        await own.send("hello")
        assert await changes.get() == "change"
        await post(browser, f"{path_of(own)}/handler", handler="agent")
        assert await changes.get() == "change"


async def test_a_busy_list_changes_once_a_second(site: Site, operators: Database) -> None:
    """However many messages come, there are few events."""
    browser = await make_browser(site.live, operators)
    async with changes_of(browser, site) as changes:
        started = time.monotonic()
        for number in range(60):
            await site.send(f"message {number}")
            await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)
        assert 2 <= changes.qsize() <= time.monotonic() - started + 1


async def test_the_list_streams_from_other_workers(
    settings: Settings, logs: io.BytesIO, operators: Database
) -> None:
    """What changes on one worker is told by the other."""
    async with serve_app(settings, logs) as here, serve_app(settings, logs) as there:
        site = await make_site(there, operators)
        browser = await make_browser(here, operators)
        async with changes_of(browser, site) as changes:
            await site.send("hello")
            assert await changes.get() == "change"


async def test_streams_are_counted_while_they_are_open(site: Site, operators: Database) -> None:
    """The gauge goes back to 0 when the browser leaves."""
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/conversations"
    async with (
        events_of(browser, f"{path}/stream") as changes,
        events_of(browser, f"{path_of(site)}/stream") as events,
    ):
        await anext(changes)
        await anext(events)
        assert "hlas_streams_open 2" in await _read_metrics(site.live)
    async with asyncio.timeout(30):
        # The server notices that the connections are closed.
        while "hlas_streams_open 0" not in await _read_metrics(site.live):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert len(site.live.events("stream_closed")) == 2


async def _read_metrics(live: Live) -> str:
    return (await live.client.get("/metrics")).text


async def test_a_list_stream_keeps_alive_and_ends(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment while nothing happens; an end after its time, as every stream has one."""
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.1)
    monkeypatch.setattr(streams, "LIST_SECONDS", 0.1)
    monkeypatch.setattr("hlas.api.admin.conversations.STREAM_SECONDS", 2.0)
    browser = await make_browser(site.live, operators)
    answer = await browser.get(f"/tenants/{site.slug}/conversations/stream")
    assert answer.status_code == 200
    assert answer.text.count(": keep-alive\n\n") >= 3


async def test_a_tenant_that_is_off_has_no_streams(site: Site, operators: Database) -> None:
    """204 keeps browsers from connecting again and again; the page does not even ask."""
    browser = await make_browser(site.live, operators)
    assert "data-stream" in (await browser.get(path_of(site))).text
    await tenants.update(operators, site.slug, {"is_active": False})
    for path in (f"/tenants/{site.slug}/conversations", path_of(site)):
        assert (await browser.get(f"{path}/stream")).status_code == 204
        assert "data-stream" not in (await browser.get(path)).text


async def test_streams_end_with_the_sign_in(site: Site, operators: Database) -> None:
    """Edge case 60: whoever signs out reads nothing more, neither a transcript nor the list."""
    browser = await make_browser(site.live, operators)
    path = f"/tenants/{site.slug}/conversations"
    async with (
        events_of(browser, f"{path}/stream") as changes,
        events_of(browser, f"{path_of(site)}/stream") as events,
    ):
        await anext(changes)
        await anext(events)
        assert (await browser.post("/sign-out")).status_code == 303
        # The contract says 2 s; the rest is for a busy machine.
        async with asyncio.timeout(5):
            assert {event async for event in changes} <= {("change", "")}
            assert [event async for event in events] == []


async def test_a_stopping_server_ends_streams(database_url: str, operators: Database) -> None:
    """SIGTERM with open streams of the console: the server is gone within seconds."""
    async with serve_process(database_url) as served:
        live = Live(served.url, None, io.BytesIO(), served.client)
        site = await make_site(live, operators)
        browser = await make_browser(live, operators)
        path = f"/tenants/{site.slug}/conversations"
        async with (
            events_of(browser, f"{path}/stream") as changes,
            events_of(browser, f"{path_of(site)}/stream") as events,
        ):
            await anext(changes)
            await anext(events)
            started = time.monotonic()
            stopping = asyncio.create_task(served.stop())
            # Both end as they should, not by a cut connection.
            assert [event async for event in changes] in ([], [("change", "")])
            assert [event async for event in events] == []
            assert await stopping == 0
            assert time.monotonic() - started < 5


async def test_an_operator_answers_once(site: Site, operators: Database) -> None:
    """A form that is sent twice is one message, with a script and without one."""
    browser = await make_browser(site.live, operators, site.slug)
    key = KEY.findall((await browser.get(path_of(site))).text)[0]
    for _ in range(2):
        answer = await browser.post(f"{path_of(site)}/messages", key=key, text="Yes, **today**.")
        assert answer.status_code == 303
        assert answer.headers["Location"] == f"/console{path_of(site)}?done=sent"
    replies = [await post(browser, f"{path_of(site)}/messages", key="2", text="Bye") for _ in "ab"]
    assert replies[0].json() == replies[1].json()
    assert replies[1].headers["Idempotent-Replayed"] == "true"
    assert await messages_of(site) == [("operator", "Yes, **today**."), ("operator", "Bye")]
    next_key = KEY.findall((await browser.get(path_of(site))).text)[0]
    assert next_key != key


async def test_what_cannot_be_sent_is_explained(site: Site, operators: Database) -> None:
    """To the script in JSON, to everybody else on a page; nothing is stored."""
    browser = await make_browser(site.live, operators)
    path = f"{path_of(site)}/messages"
    for status, code, fields in (
        (400, "invalid_text", {"key": "1", "text": " "}),
        (422, "text_too_long", {"key": "1", "text": "x" * 2001}),
        (400, "invalid_idempotency_key", {"key": "", "text": "x"}),
        (400, "invalid_idempotency_key", {"text": "x"}),
    ):
        refused = await post(browser, path, **fields)
        assert (refused.status_code, refused.json()["detail"]) == (status, code)
        page = await browser.post(path, **fields)
        assert page.status_code == status
        assert refused.json()["message"] in page.text
    assert (await browser.post(f"{path_of(site)}/handler", handler="me")).status_code == 422
    await browser.post(f"{path_of(site)}/close")
    closed = await post(browser, path, key="1", text="x")
    assert (closed.status_code, closed.json()["detail"]) == (403, "conversation_closed")
    assert await messages_of(site) == []


async def test_taking_over_and_handing_back(answered: Site, operators: Database) -> None:
    """While a person answers, the agent does not; handed back, it answers what is left."""
    site = answered
    browser = await make_browser(site.live, operators, site.slug)
    assert "The agent answers." in (await browser.get(path_of(site))).text
    taken = await browser.post(f"{path_of(site)}/handler", handler="human")
    assert taken.headers["Location"] == f"/console{path_of(site)}?done=taken-over"
    async with events_of(browser, f"{path_of(site)}/stream") as events:
        await site.send("Is anybody there?")
        assert (await next_message(events))[1]["role"] == "user"
        back = await post(browser, f"{path_of(site)}/handler", handler="agent")
        assert back.json()["handler"] == "agent"
        assert (await next_message(events))[1]["role"] == "assistant"
    changed = [event for event in await audit_of(operators) if event[1] == "conversation.handler"]
    assert len(changed) == 2


async def test_a_long_transcript_shows_its_end(site: Site, operators: Database) -> None:
    """The page opens at the last messages; earlier and later ones are a link away."""
    for number in range(1, 131):
        await site.send(f"message {number}.")
    browser = await make_browser(site.live, operators)
    page = (await browser.get(path_of(site))).text
    assert "message 30." not in page
    assert "message 31." in page
    assert "message 130." in page
    assert "Later messages" not in page
    earlier = re.findall(r'href="/console([^"]+\?after=\d+)"', page)
    assert earlier == [f"{path_of(site)}?after=0"]
    page = (await browser.get(earlier[0])).text
    assert "message 1." in page
    assert "message 101." not in page
    assert "Earlier messages" not in page
    assert "data-stream" not in page
    assert f"{path_of(site)}?after=100" in page
