"""Live conversations: the stream of a conversation, and what ends it."""

import asyncio
import io
import random
import time
from contextlib import suppress

import httpx
import pytest

from administration import Desk, make_desk
from factories import Live, Site, make_site, serve_app
from hlas.conversations import readers
from hlas.operators import administrators
from hlas.privacy import erasure
from hlas.privacy.subjects import Subject
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from scripted_agent import words
from streams import Follower, follow, open_stream

# The contract says 2 s; the rest is for a busy machine.
END_SECONDS = 5.0
RUN = ["start", "text-start", "text-delta", "text-end", "finish", "data-message"]


def requests(workers: list[Live]) -> int:
    """What a provider would have billed."""
    return sum(live.app.state.services.runner._agent.requests for live in workers)


class Reading:
    """A follower on a worker, in the background."""

    def __init__(self, live: Live, site: Site) -> None:
        self.follower = Follower()
        self.task = asyncio.create_task(follow(live.client, site, self.follower))

    async def __aenter__(self) -> Follower:
        async with asyncio.timeout(30):
            while not self.follower.frames:
                self.follower.changed.clear()
                await self.follower.changed.wait()
        return self.follower

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def test_frames(visit: Site, workers: list[Live]) -> None:
    """A message, its run and its answer, in the frames and the order of the contract."""
    async with Reading(workers[0], visit) as reader:
        assert reader.frames == [
            {
                "type": "data-state",
                "data": {"status": "open", "handler": "agent", "operator": None},
                "transient": True,
            }
        ]
        await visit.send("say 3 words in 0.3 s")
        await reader.until(["user", "assistant"])
    kinds = ["data-message", *RUN[:3], "text-delta", "text-delta", *RUN[3:]]
    assert reader.kinds() == kinds
    [start] = [frame for frame in reader.frames if frame["type"] == "start"]
    assert start["messageId"] == reader.messages[1]["id"]
    assert reader.text == reader.messages[1]["content"] == words(3)
    page = await visit.history()
    assert reader.messages == page["messages"]
    assert reader.messages[1]["metadata"]["source"] == "agent"


async def test_on_another_worker(visit: Site, workers: list[Live]) -> None:
    """A reader on another worker sees the text while it is made, and the same messages."""
    async with Reading(workers[1], visit) as reader:
        await visit.send("say 20 words in 2 s")
        await reader.until_text("word3")
        assert len(reader.messages) == 1
        await reader.until(["user", "assistant"])
    assert reader.text == reader.messages[1]["content"] == words(20)
    assert reader.resets == 0


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_both_drivers(visit: Site, workers: list[Live], connection: str) -> None:
    """The lane and the framework send the same frames under the same headers."""
    follower = Follower()
    async with open_stream(workers[0].client, visit, follower, Connection=connection) as response:
        reading = asyncio.create_task(_read(response, follower))
        await visit.send("say 2 words in 0.1 s")
        await follower.until(["user", "assistant"])
        reading.cancel()
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["transfer-encoding"] == "chunked"
    assert response.headers["access-control-allow-origin"] == visit.origin
    assert follower.kinds() == ["data-message", *RUN[:3], "text-delta", *RUN[3:]]


async def _read(response: httpx.Response, follower: Follower) -> None:
    async for data in response.aiter_raw():
        follower.feed(data)


async def cut(visit: Site, workers: list[Live], cuts: int, conversation: int) -> None:
    """Cut a reader at a random byte, resume on the other worker, until all is said."""
    chance = random.Random(conversation)
    follower = Follower()
    expected = ["user", "assistant"] * 3
    sending = asyncio.create_task(_converse(visit))
    for number in range(cuts):
        left = chance.randrange(1, 900)
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(0.2 + chance.random() * 0.3),
                open_stream(workers[number % 2].client, visit, follower) as response,
            ):
                assert response.status_code == 200
                async for data in response.aiter_raw():
                    follower.feed(data[:left])
                    left -= len(data)
                    if left <= 0:
                        break
    await sending
    reading = asyncio.create_task(follow(workers[0].client, visit, follower))
    await follower.until(expected)
    reading.cancel()
    assert follower.messages == (await visit.history())["messages"]
    assert [message["content"] for message in follower.messages[1::2]] == [words(30)] * 3
    assert follower.text == words(30)
    assert follower.resets == 0


async def _converse(visit: Site) -> None:
    for number in range(3):
        await visit.send(f"{number}: say 30 words in 1.5 s")
        answer = await visit.live.client.post("/widget/messages/assistant", headers=visit.headers())
        assert answer.status_code == 200


async def test_cut_at_any_byte(visit: Site, workers: list[Live]) -> None:
    """Edge case 54: cut at any byte over two workers, the text and the messages are exact."""
    await cut(visit, workers, 30, 1)
    assert requests(workers) == 3


@pytest.mark.soak
async def test_cut_500_times(workers: list[Live], operators: Database) -> None:
    """Edge case 54 at its full count."""
    for number in range(20):
        site = await make_site(workers[0], operators, handler="agent")
        await cut(site, workers, 25, number)


async def test_equal_posts(visit: Site, workers: list[Live]) -> None:
    """Edge case 55: 32 equal posts over two workers: one run, one request, 32 equal answers."""
    sent = await asyncio.gather(
        *(
            live.client.post(
                "/widget/messages",
                headers={**visit.headers(), "Idempotency-Key": "key-of-the-message"},
                json={"text": "say 5 words in 0.2 s"},
            )
            for live in workers * 16
        )
    )
    assert len({answer.text for answer in sent}) == 1
    headers = {**visit.headers(), "Idempotency-Key": "key-of-the-reply"}
    answers = await asyncio.gather(
        *(live.client.post("/widget/messages/assistant", headers=headers) for live in workers * 16)
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    replayed = [answer for answer in answers if "idempotent-replayed" in answer.headers]
    assert len(replayed) == 31
    assert answers[0].json()["text"] == words(5)
    assert requests(workers) == 1
    assert len((await visit.history())["messages"]) == 2


@pytest.mark.settings(rate_limit_messages_conversation="2/h", rate_limit_messages_ip="3/h")
async def test_retry_is_not_refused(answered: Site) -> None:
    """Edge case 55: a retry of what was answered passes, whatever limit is used up."""
    await answered.send("hello")
    path = "/widget/messages/assistant"
    keyed = {**answered.headers(), "Idempotency-Key": "one"}
    client = answered.live.client
    first = await client.post(path, headers=keyed)
    assert first.status_code == 200
    assert (await client.post(path, headers=answered.headers())).status_code == 200
    assert (await client.post(path, headers=answered.headers())).status_code == 429
    again = await client.post(path, headers=keyed)
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    other = {**answered.headers(), "Idempotency-Key": "two"}
    assert (await client.post(path, headers=other)).status_code == 429


async def test_stop(visit: Site, workers: list[Live]) -> None:
    """On whichever worker the visitor stops the answer, what was said is stored and marked."""
    for live in workers:
        async with Reading(workers[0], visit) as reader:
            before = len(reader.messages)
            await visit.send("say 200 words in 20 s")
            await reader.until_text("word5")
            path = f"/widget/conversations/{visit.conversation_id}/stop"
            stopped = await live.client.post(path, headers=visit.headers())
            assert (stopped.status_code, stopped.content) == (204, b"")
            await reader.until(["user", "assistant"] * (1 + before // 2))
            said = reader.messages[-1]
            assert said["metadata"]["stopped"] is True
            assert words(200).startswith(said["content"])
            assert reader.text == said["content"]


async def test_limits(visit: Site, workers: list[Live]) -> None:
    """Streams of an address and of a conversation are limited, and free their place when closed."""
    services = workers[0].app.state.services
    for scope in ("ip", "conversation"):
        services.streams._limits = {"ip": 0, "conversation": 0, scope: 2}
        async with Reading(workers[0], visit), Reading(workers[0], visit):
            path = f"/widget/conversations/{visit.conversation_id}/stream"
            refused = await workers[0].client.get(path, headers=visit.headers())
            assert (refused.status_code, refused.json()["detail"]) == (429, "rate_limited")
            assert refused.headers["retry-after"] == "5"
            assert services.metrics.streams_open._value.get() == 2
        async with asyncio.timeout(10):
            while services.streams._open:  # noqa: ASYNC110  # the server notices by itself
                await asyncio.sleep(0.01)
        async with Reading(workers[0], visit):
            pass


@pytest.mark.parametrize("cursor", ["x", "1.2", "1.2.3.x", "-1", "9" * 12, "1.2.3.4", "1,2"])
async def test_bad_cursor(visit: Site, workers: list[Live], cursor: str) -> None:
    """A cursor that is not ours is refused."""
    path = f"/widget/conversations/{visit.conversation_id}/stream"
    headers = {**visit.headers(), "Last-Event-ID": cursor}
    answer = await workers[0].client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (422, "invalid_request")


async def test_foreign_conversation(visit: Site, workers: list[Live], operators: Database) -> None:
    """Edge case 36: another conversation's stream is refused, and its answer cannot be stopped."""
    other = await make_site(workers[0], operators, handler="agent")
    for method, name in (("GET", "stream"), ("POST", "stop")):
        path = f"/widget/conversations/{other.conversation_id}/{name}"
        answer = await workers[0].client.request(method, path, headers=visit.headers())
        assert (answer.status_code, answer.json()["detail"]) == (403, "conversation_mismatch")


@pytest.mark.parametrize("end", ["expired", "signed out", "disabled", "erased"])
async def test_ends(visit: Site, workers: list[Live], operators: Database, end: str) -> None:
    """Edge case 60: the stream ends by itself when the session is over."""
    if end == "expired":
        workers[0].app.state.services.tokens.ttl_seconds = 4
        await visit.open()
        expires_at = time.time() + visit.session["expires_in"]
    await visit.send("say 1 words in 0.1 s")
    reading = Reading(workers[1], visit)
    async with reading:
        if end == "expired":
            await asyncio.sleep(expires_at - time.time())
        elif end == "signed out":
            await tenants.sign_out(operators, visit.slug)
        elif end == "disabled":
            await tenants.set_active(operators, visit.slug, active=False)
        else:
            tenant = await tenants.find_tenant(operators, visit.slug)
            await erasure.erase(operators, Subject(tenant.id, visitor_id=None))
        async with asyncio.timeout(END_SECONDS):
            await reading.task


async def test_end_of_a_key(visit: Site, workers: list[Live], operators: Database) -> None:
    """Edge case 60: an administrator's stream ends when the key is revoked; others go on."""
    path = f"/admin/tenants/{visit.slug}/conversations/{visit.conversation_id}/stream"
    desks = [await make_desk(workers[1], operators, visit.slug) for _ in range(2)]
    follower, other = Follower(), Follower()

    async def read(desk: Desk, client: Follower) -> None:
        headers = {"Authorization": f"Bearer {desk.key}"}
        async with workers[1].client.stream("GET", path, headers=headers) as response:
            await _read(response, client)

    ending, going_on = [
        asyncio.create_task(read(*one)) for one in zip(desks, (follower, other), strict=True)
    ]
    await visit.send("say 1 words in 0.1 s")
    await follower.until(["user", "assistant"])
    await administrators.revoke(operators, desks[0].prefix)
    async with asyncio.timeout(END_SECONDS):
        await ending
    await visit.send("say 1 words in 0.1 s")
    await other.until(["user", "assistant"] * 2)
    going_on.cancel()


async def test_administrators_stream(visit: Site, workers: list[Live], operators: Database) -> None:
    """An administrator's key opens the same stream; another tenant's key does not."""
    other = await make_site(workers[0], operators)
    own, foreign = [await make_desk(workers[1], operators, site.slug) for site in (visit, other)]
    path = f"/tenants/{visit.slug}/conversations/{visit.conversation_id}/stream"
    refused = await foreign.ask("GET", path)
    assert (refused.status_code, refused.json()["detail"]) == (404, "tenant_not_found")
    client = Follower()
    headers = {"Authorization": f"Bearer {own.key}"}
    async with workers[1].client.stream("GET", f"/admin{path}", headers=headers) as response:
        reading = asyncio.create_task(_read(response, client))
        await visit.send("say 2 words in 0.1 s")
        await client.until(["user", "assistant"])
        reading.cancel()
    assert client.messages == (await visit.history())["messages"]


async def test_keep_alive(
    visit: Site, workers: list[Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment is sent while nothing happens."""
    monkeypatch.setattr(readers, "KEEP_ALIVE_SECONDS", 0.1)
    async with open_stream(workers[0].client, visit, Follower()) as response:
        async with asyncio.timeout(30):
            seen = b""
            async for data in response.aiter_raw():
                seen += data
                if seen.count(b": keep-alive\n\n") > 1:
                    break


async def test_stop_of_the_server(
    settings: Settings, logs: io.BytesIO, operators: Database
) -> None:
    """A server that stops ends its streams, so that clients resume elsewhere."""
    follower = Follower()
    async with httpx.AsyncClient() as client:
        async with serve_app(settings, logs) as live:
            site = await make_site(live, operators)
            client.base_url = httpx.URL(live.url)
            task = asyncio.create_task(follow(client, site, follower))
            async with asyncio.timeout(30):
                await follower.changed.wait()
        async with asyncio.timeout(10):
            await task


async def test_missed_change(
    visit: Site, workers: list[Live], operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies before it publishes a change delays its readers, and loses nothing."""

    async def publish_nothing() -> None: ...

    monkeypatch.setattr(workers[0].app.state.services.live, "_publish", publish_nothing)
    monkeypatch.setattr("hlas.conversations.live.KEEP_ALIVE_SECONDS", 0.5)
    async with Reading(workers[1], visit) as reader:
        await visit.send("say 1 words in 0.1 s")
        await reader.until(["user", "assistant"])
