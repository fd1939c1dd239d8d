"""Answers of a language model survive their worker, are asked for once and paid for once."""

import asyncio
import io
import random
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from administration import make_desk
from factories import Live, Site, make_site
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


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_worker_ends_in_mid_answer(
    database_url: str, operators: Database, provider: ScriptedModel, number: signal.Signals
) -> None:
    """Edge case 56: the other worker answers from the knowledge; the provider was asked once."""
    async with serve_two(database_url) as (first, second):
        site = await open_site(first, operators, provider)
        follower = Follower()
        reading = asyncio.create_task(follow(second.client, site, follower))
        await site.send("say 300 words in 60 s")
        await follower.until_text("word3")
        first.process.send_signal(number)
        await follower.until(["user", "assistant"])
        reading.cancel()
        assert follower.resets == 1
        answer = follower.messages[1]
        assert answer["metadata"]["source"] in {"knowledge", "fallback"}
        assert answer["metadata"]["reason"] == "model_failed"
        assert len(provider.requests) == 1
        books = await read_books(operators, site)
        assert books["reserved"] == books["spent"] > 0
        assert books["requests"] == 1


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
        posts = [ask((site, other)[number % 2], text, key="k") for number in range(32)]
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


async def race(live: Live, operators: Database, provider: ScriptedModel, count: int) -> None:
    """An operator speaks before an answer, after it, and at some moment of it."""
    chance = random.Random(count)
    desk = await make_desk(live, operators)
    site = await make_site(live, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    for number in range(count):
        await site.open()
        await site.send("say 8 words in 0.15 s")
        if number % 3 == 0:
            await live.client.post("/widget/messages/assistant", headers=site.headers())
        elif number % 3 == 1:
            await asyncio.sleep(chance.uniform(0, 0.3))
        path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages"
        said = await desk.ask("POST", path, json={"text": f"A person speaks, {number}"})
        assert said.status_code == 200, said.text
        await asyncio.sleep(0.2)
        roles = tuple(one["role"] for one in (await site.history())["messages"])
        both, alone = ("user", "assistant", "operator"), ("user", "operator")
        assert roles in ([both], [both, alone], [alone])[number % 3]
    async with asyncio.timeout(30):
        while (await read_books(operators, site))["unsettled"]:  # noqa: ASYNC110  # background
            await asyncio.sleep(0.05)
    books = await read_books(operators, site)
    assert books["reserved"] == books["spent"]
    assert books["requests"] == len(provider.requests) <= count


async def test_takeover_races(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 59: nothing of the agent after a person's message; what was reserved is settled."""
    await race(live_server, operators, provider, 30)


@pytest.mark.soak
async def test_takeover_races_at_length(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """Edge case 59, 500 times."""
    await race(live_server, operators, provider, 500)
