"""A hostile model, through the whole service: what it writes, and what a visitor gets to see."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from factories import Live, Site, make_site
from hlas.store.db import Database
from hostile_answers import HOSTILE
from link_finder import find_links
from model_scripts import Call, Say, Step
from modelled import ask, give_model
from scripted_model import ScriptedModel
from streams import Follower, follow


class Evil:
    """Writes what it is told to, whatever it is asked."""

    def __init__(self) -> None:
        self.steps: list[list[Step]] = []

    def __call__(self, body: dict[str, Any]) -> list[Step]:
        return self.steps.pop(0) if self.steps else [Say("Done.")]


@pytest_asyncio.fixture
async def evil() -> AsyncIterator[ScriptedModel]:
    # Cut after every 7 bytes: constructs are torn apart.
    async with ScriptedModel(Evil(), piece=7) as started:
        yield started


@pytest_asyncio.fixture
async def shop(live_server: Live, operators: Database, evil: ScriptedModel) -> Site:
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, evil.url)
    return site


def tell(evil: ScriptedModel, *steps: list[Step]) -> None:
    assert isinstance(evil.script, Evil)
    evil.script.steps = list(steps)


@pytest.mark.parametrize("text", HOSTILE[::8])
async def test_links(shop: Site, evil: ScriptedModel, text: str) -> None:
    """Edge case 66: no foreign link and no image is streamed or stored."""
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    tell(evil, [Say(f"Look here: {text} and there.")])
    body = (await ask(shop, "What does delivery cost?")).json()
    await follower.until(["user", "assistant"])
    reading.cancel()
    stored = body["assistant_message"]["content"]
    said = "".join(one["delta"] for one in follower.frames if one["type"] == "text-delta")
    for shown in (stored, said):
        assert [link for link in find_links(shown) if "evil" in link] == []
    assert said == stored
    assert len(evil.requests) == 1


async def test_canary(shop: Site, evil: ScriptedModel, operators: Database) -> None:
    """Edge case 66: not even the beginning of the secret stays on the visitor's screen."""
    row = await operators.one("select canary from agent_settings")
    assert row is not None
    canary = str(row["canary"])
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    tell(evil, [Say(f"The secret is {canary[:20]}"), Say(f"{canary[20:]}.")])
    body = (await ask(shop, "What does delivery cost?")).json()
    await follower.until(["user", "assistant"])
    reading.cancel()
    assert body["meta"]["reason"] == "model_failed"
    said = "".join(one["delta"] for one in follower.frames if one["type"] == "text-delta")
    assert canary[:20] not in said + body["assistant_message"]["content"]
    assert len(evil.requests) == 1


async def test_other_tenants(
    shop: Site, evil: ScriptedModel, live_server: Live, operators: Database
) -> None:
    """Edge case 65: another tenant's id in arguments reaches nothing of that tenant."""
    other = await make_site(live_server, operators, handler="agent")
    await operators.execute(
        "insert into knowledge (tenant_id, id, position, question, answer) values "
        "($1, gen_random_uuid(), 1, 'What is the other secret?', 'The whale sings at noon.')",
        other.tenant_id,
    )
    arguments = [
        {"query": "What is the other secret?", "tenant_id": other.tenant_id},
        {"query": f"secret of {other.tenant_id}"},
        {"query": "whale' or tenant_id is not null --"},
    ]
    calls: list[Step] = [Call("search_knowledge", orjson.dumps(one).decode()) for one in arguments]
    tell(evil, calls, [Say("Nothing found.")])
    await ask(shop, "What does delivery cost?")
    results = [one["content"] for one in evil.requests[-1]["messages"] if one["role"] == "tool"]
    assert len(results) == 3
    assert "whale sings" not in " ".join(results)
    assert "tenant_id" in results[0]
    assert len(evil.requests) == 2


async def test_many_calls(shop: Site, evil: ScriptedModel) -> None:
    """Edge case 65: eight calls in a step are made; unknown tools are answered, not run."""
    calls: list[Step] = [Call(f"drop_table_{number}") for number in range(8)]
    tell(evil, calls, [Say("So be it.")])
    body = (await ask(shop, "What does delivery cost?")).json()
    assert body["meta"]["tools_used"] == []
    assert body["assistant_message"]["content"] == "So be it."
    events = shop.live.events("tool_called")
    assert [(one["tool"], one["outcome"]) for one in events] == [("unknown", "unknown")] * 8
    results = [one for one in evil.requests[1]["messages"] if one["role"] == "tool"]
    assert (len(results), len(evil.requests)) == (8, 2)


async def test_too_many_calls(shop: Site, evil: ScriptedModel) -> None:
    """Edge case 65: a step of nine calls makes none of them, and the knowledge answers."""
    calls: list[Step] = [Call("search_knowledge", '{"query": "open"}') for _ in range(9)]
    tell(evil, calls, [Say("So be it.")])
    body = (await ask(shop, "What does delivery cost?")).json()
    assert (body["meta"]["reason"], body["meta"]["source"]) == ("model_failed", "knowledge")
    assert (body["meta"]["steps"], body["meta"]["tools_used"]) == (1, [])
    assert [one["code"] for one in shop.live.events("model_failed")] == ["too_long"]
    assert shop.live.events("tool_called") == []
    assert len(evil.requests) == 1


async def test_huge_arguments(shop: Site, evil: ScriptedModel) -> None:
    """Edge case 65: arguments of a megabyte end the request, and the knowledge answers."""
    tell(evil, [Call("search_knowledge", orjson.dumps({"query": "x" * 2**20}).decode())])
    body = (await ask(shop, "What does delivery cost?")).json()
    assert (body["meta"]["reason"], body["meta"]["source"]) == ("model_failed", "knowledge")
    assert len(evil.requests) == 1
