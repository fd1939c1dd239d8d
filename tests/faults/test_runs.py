"""Runs survive their workers: kills and stops in mid-answer, and people who take over."""

import asyncio
import io
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest

from administration import Desk, make_desk
from factories import Live, Site, make_site
from hlas.agent import Answer, Listener, Question
from hlas.store.db import Database
from hlas.tenants import tenants
from processes import UNLIMITED, Served, serve_process
from scripted_agent import RESUMED, words
from streams import Follower, follow

SUPPORT = Path(__file__).parents[1] / "support"
ORIGIN = "https://killed.example"
ACTIVE = """
select 1 from runs
where conversation_id = $1::text::uuid and state in ('waiting', 'running')
"""


def scripted(receipts: Path) -> dict[str, Any]:
    """Variables of a server whose agent is the scripted one."""
    path = os.pathsep.join((str(SUPPORT / "scripted"), str(SUPPORT)))
    return {"PYTHONPATH": path, "HLAS_RECEIPTS": str(receipts), **UNLIMITED}


@asynccontextmanager
async def serve_two(database_url: str, receipts: Path) -> AsyncIterator[list[Served]]:
    """Two servers of one worker each on one database; their agents write receipts."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(serve_process(database_url, **scripted(receipts)))
            for _ in range(2)
        ]


async def open_site(served: Served, operators: Database) -> Site:
    made = await tenants.add(operators, "Killed", "killed", [ORIGIN])
    live = Live(served.url, None, io.BytesIO(), served.client)
    site = Site(live, "killed", str(made.id), ORIGIN)
    await site.open()
    return site


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_worker_ends_in_mid_answer(
    database_url: str, operators: Database, tmp_path: Path, number: signal.Signals
) -> None:
    """Edge case 56: another worker finishes the run, the provider is asked once, and the reader
    sees the text withdrawn and then the answer.
    """
    receipts = tmp_path / "receipts"
    async with serve_two(database_url, receipts) as (first, second):
        site = await open_site(first, operators)
        follower = Follower()
        reading = asyncio.create_task(follow(second.client, site, follower))
        await site.send("say 300 words in 60 s")
        await follower.until_text("word3")
        if number == signal.SIGKILL:
            first.process.kill()
        else:
            first.process.terminate()
            await asyncio.to_thread(first.process.wait)
            # Released, or taken over already: nobody waits for the lease to end.
            [run] = await operators.all("select owner is null or attempt > 1 as is_free from runs")
            assert run["is_free"]
        async with asyncio.timeout(10):
            await follower.until(["user", "assistant"])
        reading.cancel()
        assert follower.resets == 1
        assert follower.messages[1]["content"] == RESUMED
        assert follower.kinds()[-1] == "data-message"
        assert len(receipts.read_text().splitlines()) == 1
        path = f"/widget/conversations/{site.conversation_id}/messages"
        page = (await second.client.get(path, headers=site.headers())).json()
        assert [message["role"] for message in page["messages"]] == ["user", "assistant"]


async def test_only_worker_comes_back(
    database_url: str, operators: Database, tmp_path: Path
) -> None:
    """Edge case 56: a server that was killed alone finishes the run when it is started again."""
    receipts = tmp_path / "receipts"
    variables = scripted(receipts)
    async with serve_process(database_url, **variables) as served:
        site = await open_site(served, operators)
        await site.send("say 300 words in 60 s")
        async with asyncio.timeout(30):
            while not receipts.exists():  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.02)
        served.process.kill()
    async with serve_process(database_url, **variables) as served:
        answer = await served.client.post("/widget/messages/assistant", headers=site.headers())
        assert answer.json()["text"] == RESUMED
    assert len(receipts.read_text().splitlines()) == 1


class GatedAgent:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def answer(self, question: Question, listener: Listener) -> Answer:
        await self.gate.wait()
        return Answer("The agent speaks.", "knowledge", 1.0)


async def race(workers: list[Live], operators: Database, count: int) -> None:
    """An operator speaks before the agent, after it, and at the same time."""
    chance = random.Random(count)
    duration = 0.01
    agent = GatedAgent()
    for live in workers:
        live.app.state.services.runner._agent = agent
    desks = [await make_desk(live, operators) for live in workers]
    site = await make_site(workers[0], operators, handler="agent")
    ends: set[int] = set()
    # Both ends of the race must have been seen.
    for number in chain(range(count), takewhile(lambda _: len(ends) < 2, range(1, 3000, 3))):
        agent.gate = asyncio.Event()
        await site.open()
        await site.send("Is anybody there?")
        speaking = say(desks[number % 2], site, f"A person speaks, {number}")
        if number % 3 == 0:
            agent.gate.set()
            await site.live.client.post("/widget/messages/assistant", headers=site.headers())
            await speaking
        elif number % 3 == 1:
            started = time.monotonic()
            asyncio.get_running_loop().call_later(chance.random() * duration, agent.gate.set)
            await speaking
            duration = 2 * (time.monotonic() - started)
        else:
            await speaking
            agent.gate.set()
        roles = [message["role"] for message in (await settled(operators, site))["messages"]]
        both, alone = ["user", "assistant", "operator"], ["user", "operator"]
        assert roles in ([both], [both, alone], [alone])[number % 3]
        if number % 3 == 1:
            ends.add(len(roles))
    assert len(ends) == 2


async def say(desk: Desk, site: Site, text: str) -> None:
    path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages"
    answer = await desk.ask("POST", path, json={"text": text})
    assert answer.status_code == 200, answer.text


async def settled(operators: Database, site: Site) -> dict[str, list[dict[str, str]]]:
    """The history once no run of the conversation is under way or can still write."""
    async with asyncio.timeout(30):
        while await operators.all(ACTIVE, site.conversation_id):  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.01)
        # The agent may not have noticed yet that it was interrupted.
        while site.live.app.state.services.runner._tasks:  # noqa: ASYNC110  # polled
            await asyncio.sleep(0.01)
    return await site.history()


async def test_takeover_races_the_answer(workers: list[Live], operators: Database) -> None:
    """Edge case 59: nothing of the agent after an operator's message."""
    await race(workers, operators, 30)


@pytest.mark.soak
async def test_takeover_races_the_answer_500_times(
    workers: list[Live], operators: Database
) -> None:
    """Edge case 59 at its full count."""
    await race(workers, operators, 500)


async def test_takeover_in_mid_answer(workers: list[Live], operators: Database) -> None:
    """A person takes over on another worker: the text is withdrawn; handed back, the agent answers
    what was asked meanwhile.
    """
    site = await make_site(workers[0], operators, handler="agent")
    desk = await make_desk(workers[1], operators)
    follower = Follower()
    reading = asyncio.create_task(follow(workers[1].client, site, follower))
    await site.send("say 300 words in 60 s")
    await follower.until_text("word3")
    for text in ("A person is here.", "And stays."):
        await say(desk, site, text)
    await follower.until(["user", "operator", "operator"])
    assert follower.resets == 1
    await site.send("say 2 words in 0.1 s")
    waiting = await site.live.client.post("/widget/messages/assistant", headers=site.headers())
    assert (waiting.status_code, waiting.json()["detail"]) == (409, "taken_over")
    path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/handler"
    handed = await desk.ask("PUT", path, json={"handler": "agent"})
    assert (handed.status_code, handed.json()["handler"]) == (200, "agent")
    await follower.until(["user", "operator", "operator", "user", "assistant"])
    reading.cancel()
    with suppress(asyncio.CancelledError, httpx.HTTPError):
        await reading
    assert follower.messages[-1]["content"] == words(2)
    states = [
        frame["data"]["handler"] for frame in follower.frames if frame["type"] == "data-state"
    ]
    assert states == ["agent", "human", "agent"]
    rows = await operators.all(
        "select after from events where action = 'conversation.handler' order by id"
    )
    assert [row["after"]["handler"] for row in rows] == ["human", "agent"]
    assert len(workers[0].events("taken_over")) == 1


async def test_operators_message_is_idempotent(workers: list[Live], operators: Database) -> None:
    """A retry of an operator's message is a replay; another text with its key is a conflict."""
    site = await make_site(workers[0], operators)
    desk = await make_desk(workers[0], operators)
    path = f"/tenants/{site.slug}/conversations/{site.conversation_id}/messages"
    keyed = {"Idempotency-Key": "operator-key"}
    first = await desk.ask("POST", path, json={"text": "Hello"}, headers=keyed)
    again = await desk.ask("POST", path, json={"text": "Hello"}, headers=keyed)
    assert first.content == again.content
    assert again.headers["idempotent-replayed"] == "true"
    other = await desk.ask("POST", path, json={"text": "Bye"}, headers=keyed)
    assert (other.status_code, other.json()["detail"]) == (409, "idempotency_key_conflict")
    assert [one["role"] for one in (await site.history())["messages"]] == ["operator"]


async def test_questions_while_the_agent_speaks(workers: list[Live], operators: Database) -> None:
    """Edge case 58: what is asked during an answer is answered by the next run, together."""
    site = await make_site(workers[0], operators, handler="agent")
    follower = Follower()
    reading = asyncio.create_task(follow(workers[0].client, site, follower))
    await site.send("say 10 words in 1 s")
    await follower.until_text("word1")
    for text in ("and then", "say 2 words in 0.1 s"):
        await site.send(text)
    await follower.until(["user", "user", "user", "assistant", "assistant"])
    reading.cancel()
    first, second = follower.messages[3:]
    assert (first["content"], first["metadata"]["reply_to"]) == (words(10), 1)
    assert (second["content"], second["metadata"]["reply_to"]) == (words(2), 3)
    assert workers[0].app.state.services.runner._agent.requests == 2
