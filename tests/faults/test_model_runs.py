"""Answers of a language model survive their worker, are asked for once and paid for once."""

import asyncio
import io
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain, takewhile
from typing import Any

import httpx
import pytest
import pytest_asyncio

from administration import make_desk
from factories import Live, Site, make_site, serve_app
from hlas.settings import Settings
from hlas.store.db import Database
from hlas.tenants import tenants
from modelled import ask, give_model
from processes import UNLIMITED, Served, serve_process
from scripted_agent import words
from scripted_model import ScriptedModel
from streams import Follower, follow

ORIGIN = "https://modelled.example"
BOOKS = """
select coalesce(sum(r.amount), 0)::bigint as reserved,
       (select coalesce(sum(s.amount), 0)::bigint from spend s where s.tenant_id = $1::text::uuid)
           as spent,
       count(*) filter (where not r.is_settled) as unsettled, count(*) as requests
from reservations r
where r.tenant_id = $1::text::uuid
"""
ACTIVE = "select 1 from runs where state in ('waiting', 'running')"


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as started:
        yield started


@asynccontextmanager
async def serve_two(database_url: str) -> AsyncIterator[list[Served]]:
    variables: dict[str, Any] = {**UNLIMITED}
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serve_process(database_url, **variables))
            for _ in range(2)
        ]


async def open_site(served: Served, operators: Database, provider: ScriptedModel) -> Site:
    made = await tenants.add(operators, "Modelled", "modelled", [ORIGIN])
    await give_model(operators, str(made.id), provider.url)
    live = Live(served.url, None, io.BytesIO(), served.client)
    site = Site(live, "modelled", str(made.id), ORIGIN)
    await site.open()
    return site


async def read_books(operators: Database, site: Site) -> dict[str, int]:
    row = await operators.one(BOOKS, site.tenant_id)
    assert row is not None
    return dict(row)


async def read_clock(operators: Database) -> datetime:
    row = await operators.one("select clock_timestamp() as now")
    assert row is not None
    now: datetime = row["now"]
    return now


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_worker_ends_in_mid_answer(
    database_url: str, operators: Database, provider: ScriptedModel, number: signal.Signals
) -> None:
    """Edge case 56: within 10 s the other worker answers from the knowledge; the provider was asked
    once, and what it may be owed is on the books.
    """
    async with serve_two(database_url) as (first, second):
        site = await open_site(first, operators, provider)
        follower = Follower()
        reading = asyncio.create_task(follow(second.client, site, follower))
        await site.send("say 300 words in 60 s")
        await follower.until_text("word3")
        before = await read_books(operators, site)
        ended_at = await read_clock(operators)
        first.process.send_signal(number)
        if number == signal.SIGTERM:
            await asyncio.to_thread(first.process.wait)
            # Released, or taken over already: nobody waits for the lease to end.
            [run] = await operators.all("select owner is null or attempt > 1 as is_free from runs")
            assert run["is_free"]
        await follower.until(["user", "assistant"])
        reading.cancel()
        # Both by the database's clock.
        [stored] = await operators.all("select created_at from messages where role = 'assistant'")
        assert timedelta() < stored["created_at"] - ended_at < timedelta(seconds=10)
        assert follower.resets == 1
        answer = follower.messages[1]
        assert answer["metadata"]["source"] in {"knowledge", "fallback"}
        assert answer["metadata"]["reason"] == "model_failed"
        assert len(provider.requests) == 1
        # Nobody knows what the cut answer cost: it counts in full, settled or not.
        books = await read_books(operators, site)
        assert books["spent"] == books["reserved"] == before["reserved"] > 0
        assert (before["unsettled"], books["requests"]) == (1, 1)
        assert number == signal.SIGTERM or books["unsettled"] == 1


async def test_reader_resumes_on_another_worker(
    database_url: str, operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 54: a reader that is cut again and again, on both workers, sees the exact text."""
    chance = random.Random(54)
    async with serve_two(database_url) as workers:
        site = await open_site(workers[0], operators, provider)
        follower = Follower()
        await site.send("say 120 words in 4 s")
        cuts = 0
        while [one["role"] for one in follower.messages] != ["user", "assistant"]:
            served = workers[cuts % 2]
            reading = asyncio.create_task(follow(served.client, site, follower))
            done, _ = await asyncio.wait({reading}, timeout=chance.uniform(0.01, 0.3))
            assert not done
            reading.cancel()
            await asyncio.wait({reading})
            follower.disconnect()
            cuts += 1
        assert cuts > 5
        assert follower.messages[1]["content"] == words(120)
        assert follower.text == words(120)
        assert (follower.resets, len(provider.requests)) == (0, 1)


async def insist(site: Site, text: str, key: str) -> httpx.Response:
    """Ask again when a busy machine could not serve it, as the response says."""
    async with asyncio.timeout(60):
        response = await ask(site, text, key)
        while response.status_code == 503:
            await asyncio.sleep(int(response.headers["retry-after"]))
            response = await ask(site, text, key)
    return response


async def test_equal_posts(database_url: str, operators: Database, provider: ScriptedModel) -> None:
    """Edge case 55: 32 equal posts over two workers: one provider request, 32 equal answers."""
    async with serve_two(database_url) as workers:
        site = await open_site(workers[0], operators, provider)
        other = Site(
            Live(workers[1].url, None, io.BytesIO(), workers[1].client),
            site.slug,
            site.tenant_id,
            site.origin,
            site.session,
        )
        text = "say 20 words in 0.5 s"
        posts = [insist((site, other)[number % 2], text, key="k") for number in range(32)]
        responses = await asyncio.gather(*posts)
        assert {response.status_code for response in responses} == {200}
        assert len({response.content for response in responses}) == 1
        assert responses[0].json()["assistant_message"]["content"] == words(20)
        retry = await ask(other, text, key="k")
        assert retry.content == responses[0].content
        assert len(provider.requests) == 1


async def test_browser_leaves(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 57: the answer is made and stored although nobody waits for it."""
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    asking = asyncio.create_task(ask(site, "say 10 words in 0.5 s"))
    await provider.until(lambda: len(provider.requests) == 1)
    asking.cancel()
    async with asyncio.timeout(30):
        while len((await site.history())["messages"]) < 2:  # noqa: ASYNC110  # background
            await asyncio.sleep(0.05)
    assert (await site.history())["messages"][1]["content"] == words(10)
    assert provider.left == 0


@pytest.mark.settings(rate_limit_messages_conversation="1/h")
async def test_retry_over_the_limit(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 55: with the limit used up, a retry after the answer is replayed, anything new is
    refused, and the provider is asked once.
    """
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    first = await ask(site, "say 5 words in 0 s", key="k")
    assert first.json()["assistant_message"]["content"] == words(5)
    assert (await ask(site, "say 6 words in 0 s", key="other")).status_code == 429
    again = await ask(site, "say 5 words in 0 s", key="k")
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    books = await read_books(operators, site)
    assert (len(provider.requests), books["requests"]) == (1, 1)


@pytest_asyncio.fixture
async def pair(settings: Settings, logs: io.BytesIO) -> AsyncIterator[list[Live]]:
    """Two workers on one database, with their own agents."""
    async with serve_app(settings, logs) as first, serve_app(settings, logs) as second:
        yield [first, second]


async def race(
    workers: list[Live], operators: Database, provider: ScriptedModel, count: int
) -> None:
    """An operator speaks before an answer, after it, and at some moment of it.

    The visitor is on one worker, the operator on the other.
    """
    chance = random.Random(count)
    desks = [await make_desk(live, operators) for live in workers]
    first = await make_site(workers[0], operators, handler="agent")
    await give_model(operators, first.tenant_id, provider.url)
    sites = [replace(first, live=live) for live in workers]
    ends: set[int] = set()
    duration = 0.3
    # Both ends of the race must have been seen.
    for number in chain(range(count), takewhile(lambda _: len(ends) < 2, range(1, 3000, 3))):
        site, desk = sites[number % 2], desks[1 - number % 2]
        await site.open()
        started = time.monotonic()
        await site.send(f"say 8 words in {20 if number % 3 == 2 else 0.15} s")
        if number % 3 == 0:
            await site.live.client.post("/widget/messages/assistant", headers=site.headers())
            duration = 2 * (time.monotonic() - started)
        elif number % 3 == 1:
            await asyncio.sleep(chance.uniform(0, duration))
        path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages"
        said = await desk.ask("POST", path, json={"text": f"A person speaks, {number}"})
        assert said.status_code == 200, said.text
        await until_idle(workers, operators)
        roles = tuple(one["role"] for one in (await site.history())["messages"])
        both, alone = ("user", "assistant", "operator"), ("user", "operator")
        assert roles in ([both], [both, alone], [alone])[number % 3]
        if number % 3 == 1:
            ends.add(len(roles))
    assert len(ends) == 2
    async with asyncio.timeout(30):
        while (await read_books(operators, first))["unsettled"]:  # noqa: ASYNC110  # background
            await asyncio.sleep(0.05)
    books = await read_books(operators, first)
    assert books["reserved"] == books["spent"] > 0
    assert len(provider.requests) <= books["requests"]


async def until_idle(workers: list[Live], operators: Database) -> None:
    """Until no run is under way or can still write."""
    runners = [live.app.state.services.runner for live in workers]
    async with asyncio.timeout(30):
        while await operators.all(ACTIVE) or any(  # noqa: ASYNC110  # polled
            runner._tasks for runner in runners
        ):
            await asyncio.sleep(0.01)


async def test_takeover_races(
    pair: list[Live], operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 59: nothing of the agent after a person's message; what was reserved is settled."""
    await race(pair, operators, provider, 30)


@pytest.mark.soak
async def test_takeover_races_at_length(
    pair: list[Live], operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 59, 500 times."""
    await race(pair, operators, provider, 500)
