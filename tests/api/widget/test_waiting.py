"""Requests that wait for an answer: how many, how long, and what they cost."""

import asyncio

import httpx
import pytest

from factories import Live, Site
from hlas.services import Services
from scripted_agent import words

PATH = "/widget/messages/assistant"
RETRY_SECONDS = 0.01


def services_of(live: Live) -> Services:
    services: Services = live.app.state.services
    return services


async def until_waiting(live: Live, count: int) -> None:
    """So many requests of one address wait at this worker."""
    places = services_of(live).streams._open
    async with asyncio.timeout(30):
        while sum(places.values()) != count:  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(RETRY_SECONDS)


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("path", [PATH, "/widget/agent/reply"])
async def test_client_that_leaves(
    visit: Site, workers: list[Live], connection: str, path: str
) -> None:
    """Its request ends, in the lane and in the framework; edge case 57: the answer is stored."""
    await visit.send("say 12 words in 3 s")
    url = httpx.URL(visit.live.url)
    assert url.host
    _, writer = await asyncio.open_connection(url.host, url.port)
    headers = visit.headers(Host="x", Connection=connection, Content_Length="0")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode())
    await until_waiting(visit.live, 1)
    writer.close()
    await until_waiting(visit.live, 0)
    assert len((await visit.history())["messages"]) == 1, "it ended before the answer"
    async with asyncio.timeout(30):
        while len(messages := (await visit.history())["messages"]) < 2:  # noqa: ASYNC110  # polled
            await asyncio.sleep(RETRY_SECONDS)
    assert messages[1]["content"] == words(12)
    [line] = [one for one in visit.live.events("request") if one["route"] == path]
    assert line["status"] == 408


@pytest.mark.settings(rate_limit_streams_ip=1)
async def test_waiting_takes_a_place(visit: Site, workers: list[Live]) -> None:
    """An address has a bounded number of requests that wait; a retry of a stored answer passes."""
    client, headers = visit.live.client, visit.headers()
    await visit.send("hello")
    keyed = {**headers, "Idempotency-Key": "one"}
    first = await client.post(PATH, headers=keyed)
    await visit.send("say 10 words in 2 s")
    waiting = asyncio.create_task(client.post(PATH, headers=headers))
    await until_waiting(visit.live, 1)
    for path in (PATH, "/widget/agent/reply"):
        refused = await client.post(path, headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    again = await client.post(PATH, headers=keyed)
    assert (again.status_code, again.content) == (200, first.content)
    assert (await waiting).status_code == 200
    await until_waiting(visit.live, 0)


@pytest.mark.settings(rate_limit_messages_conversation="1/h", rate_limit_messages_ip="1/h")
async def test_stop_is_no_message(visit: Site) -> None:
    """A visitor who has used up the limit of messages can still stop the answer."""
    await visit.send("say 200 words in 60 s")
    path = f"/widget/conversations/{visit.conversation_id}/stop"
    for _ in range(2):
        stopped = await visit.live.client.post(path, headers=visit.headers())
        assert (stopped.status_code, stopped.content) == (204, b"")
