"""The agent with a model: steps, tools, limits, money, and what happens when the model fails."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from factories import Live, Site, make_site
from hlas.store.db import Database
from model_scripts import Await, Say, Step, Usage
from modelled import COVERED, PRICE, ask, give_model
from scripted_agent import words
from scripted_model import ScriptedModel
from streams import Follower, follow

SPENT = """
select coalesce(sum(amount), 0)::bigint as amount, count(*) as requests,
       count(*) filter (where is_settled) as settled
from reservations
where tenant_id = $1::text::uuid
"""


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as started:
        yield started


@pytest_asyncio.fixture
async def shop(live_server: Live, operators: Database, provider: ScriptedModel) -> Site:
    """A visitor of a tenant with a model."""
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    return site


async def read_spent(operators: Database, site: Site) -> dict[str, int]:
    row = await operators.one(SPENT, site.tenant_id)
    assert row is not None
    return dict(row)


async def test_answer(shop: Site, provider: ScriptedModel, operators: Database) -> None:
    """The model is given passages and the question; its answer is stored with what it cost."""
    response = await ask(shop, f"{COVERED}\nrepeat It costs 99 crowns [1].")
    body = response.json()
    assert body["assistant_message"]["content"] == "It costs 99 crowns [1]."
    assert body["meta"]["source"] == "agent"
    assert (body["meta"]["steps"], body["meta"]["tools_used"]) == (1, [])
    metadata = body["assistant_message"]["metadata"]
    assert metadata["sources"] == [{"number": 1, "title": "What does delivery cost?", "url": ""}]
    assert len(metadata["entries"]) == 1
    [request] = provider.requests
    assert "Delivery costs 99 crowns." in request["messages"][-1]["content"]
    assert request["max_tokens"] == 800
    usage = body["meta"]["usage"]
    cost = usage["input_tokens"] + usage["output_tokens"]
    assert usage["cost_usd"] == pytest.approx(cost * PRICE / 1e6 / 1e9)
    spent = await read_spent(operators, shop)
    assert spent == {"amount": cost * PRICE // 10**6, "requests": 1, "settled": 1}


async def test_sources(shop: Site, provider: ScriptedModel) -> None:
    """Sources are listed by number; a passage that a tool finds again is the same passage."""
    call = 'call search_knowledge {"query": "When are you open?"}'
    body = (await ask(shop, f"{COVERED}\n{call} then repeat First [2], then [1].")).json()
    sources = body["assistant_message"]["metadata"]["sources"]
    assert [source["number"] for source in sources] == [1, 2]
    agent = shop.live.app.state.services.agent
    call = f'call search_knowledge {{"query": "{COVERED}"}}'
    question = f"{COVERED}\n{call} then repeat Done [1]."
    trial = await agent.try_out(shop.tenant_id, question, "en")
    assert trial.answer.tools_used == ("search_knowledge",)
    assert "Delivery costs 99 crowns." in provider.requests[-1]["messages"][-1]["content"]
    assert [passage.number for passage in trial.passages].count(1) == 1


async def test_history(shop: Site, provider: ScriptedModel, operators: Database) -> None:
    """The model is given the conversation so far, as much of it as was asked for."""
    await ask(shop, "repeat The first answer [1].")
    await ask(shop, "repeat The second answer.")
    roles = [message["role"] for message in provider.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert "The first answer" in provider.requests[-1]["messages"][2]["content"]
    # Numbers of earlier citations mean other passages now.
    assert "[1]" not in provider.requests[-1]["messages"][2]["content"]
    await ask(shop, "repeat The third answer.", max_history_messages=0)
    roles = [message["role"] for message in provider.requests[-1]["messages"]]
    assert roles == ["system", "user"]


async def test_no_model(answered: Site) -> None:
    """A tenant without a model is answered from its knowledge."""
    body = (await ask(answered, "say 3 words in 0 s")).json()
    assert (body["meta"]["source"], body["meta"]["steps"]) == ("fallback", 0)


async def test_nothing_to_go_by(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """Without a passage and without a tool that could help, the model is not asked."""
    site = await make_site(live_server, operators, handler="agent")
    tools = ["search_knowledge", "hand_over"]
    await give_model(operators, site.tenant_id, provider.url, tools=tools)
    body = (await ask(site, "Kde koupím zelenou velrybu?")).json()
    assert (body["meta"]["source"], body["meta"]["steps"]) == ("fallback", 0)
    assert provider.requests == []


async def test_tool(shop: Site, provider: ScriptedModel) -> None:
    """The model calls a tool, is given its result, and answers; readers see the tool at work."""
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    call = 'call search_knowledge {"query": "When are you open?"}'
    body = (await ask(shop, f"{COVERED}\n{call} then repeat From 9 to 17 [2].")).json()
    assert body["assistant_message"]["content"] == "From 9 to 17 [2]."
    assert (body["meta"]["steps"], body["meta"]["tools_used"]) == (2, ["search_knowledge"])
    result = provider.requests[1]["messages"][-1]
    assert result["role"] == "tool"
    assert "From 9 to 17." in result["content"]
    await follower.until(["user", "assistant"])
    reading.cancel()
    kinds = follower.kinds()
    assert kinds[1:4] == ["start", "tool-input-available", "tool-output-available"]
    frame = next(one for one in follower.frames if one["type"] == "tool-input-available")
    assert (frame["toolName"], frame["input"]) == ("search_knowledge", {})


@pytest.mark.parametrize("max_steps", [1, 3])
async def test_endless_calls(shop: Site, provider: ScriptedModel, max_steps: int) -> None:
    """Edge case 65: at most `max_steps` steps, then one without tools."""
    text = f'{COVERED}\ncall search_knowledge {{"query": "open"}} forever'
    body = (await ask(shop, text, max_steps=max_steps)).json()
    assert body["assistant_message"]["content"] == "Done."
    assert body["meta"]["steps"] == len(provider.requests) == max_steps + 1
    assert "tools" not in provider.requests[-1]


async def test_too_many_steps(shop: Site, provider: ScriptedModel) -> None:
    """A model that calls a tool although there is none any more: the knowledge answers."""
    steps = ['call search_knowledge {"query": "open"}'] * 6
    body = (await ask(shop, " then ".join(steps), max_steps=2)).json()
    assert body["meta"]["reason"] == "steps"
    assert body["meta"]["source"] in {"knowledge", "fallback"}
    assert len(provider.requests) == 3


@pytest.mark.parametrize(
    ("script", "reason", "billed"),
    [
        ("fail 401", "model_failed", 0),
        ("fail 429 after 7", "model_failed", 0),
        ("fail 500", "model_failed", 1),
        ("fail cut", "model_failed", 1),
        ("say 5 words in 0.1 s fail cut", "model_failed", 1),
        ("fail garbage", "model_failed", 1),
        ("fail error", "model_failed", 1),
        ("fail empty", "model_failed", 1),
        ("fail endless", "model_failed", 1),
        ("say 5 words in 0 s finish content_filter", "model_failed", 1),
        ("fail hang", "model_timeout", 1),
        ("say 5 words in 0.1 s fail hang", "model_timeout", 1),
    ],
)
async def test_provider_fails(
    shop: Site,
    provider: ScriptedModel,
    operators: Database,
    script: str,
    reason: str,
    billed: int,
) -> None:
    """Edge case 64: an answer within the time limit, the reason, and nothing paid twice."""
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    timeout = 1000 if "hang" in script else 20_000
    body = (await ask(shop, script, timeout_ms=timeout)).json()
    assert body["meta"]["reason"] == reason
    assert body["meta"]["source"] in {"knowledge", "fallback"}
    assert "word0" not in body["assistant_message"]["content"]
    assert (len(provider.requests), provider.billed) == (1, billed)
    spent = await read_spent(operators, shop)
    assert (spent["requests"], spent["settled"]) == (1, 1)
    # What may have been paid counts in full, what was refused counts nothing.
    assert bool(spent["amount"]) == bool(billed)
    await follower.until(["user", "assistant"])
    reading.cancel()
    assert follower.resets == ("say" in script or "endless" in script)


async def test_length(shop: Site, provider: ScriptedModel) -> None:
    """Edge case 64: an answer that was cut for its length is sent, and marked."""
    body = (await ask(shop, "say 5 words in 0 s finish length")).json()
    assert body["assistant_message"]["content"] == f"{words(5)} …"
    assert body["meta"]["source"] == "agent"
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("usage", "is_whole"),
    [("none", True), ("twice", False), ("negative", True), ("absurd", None), ("12/34", False)],
)
async def test_usage(
    shop: Site,
    provider: ScriptedModel,
    operators: Database,
    usage: str,
    is_whole: bool | None,  # noqa: FBT001  # a parameter of the test
) -> None:
    """Edge case 63: whatever the provider reports, it is settled within the reservation."""
    await ask(shop, f"say 5 words in 0 s usage {usage}")
    [request] = provider.requests
    most = (len(orjson.dumps(request)) * 2 + 800) * PRICE // 10**6
    spent = await read_spent(operators, shop)
    assert spent["settled"] == 1
    assert 0 < spent["amount"] <= most
    if is_whole is not None:
        assert (spent["amount"] > 800 * PRICE // 10**6) == is_whole


async def test_price_changes(live_server: Live, operators: Database) -> None:
    """Edge case 63: an answer is settled with the price that it was reserved with; the next one
    has the new price.
    """
    gate = asyncio.Event()
    steps: list[Step] = [Say("First words"), Await(gate), Say(" and last ones."), Usage("30/20")]
    async with ScriptedModel(lambda _: steps) as provider:
        site = await make_site(live_server, operators, handler="agent")
        await give_model(operators, site.tenant_id, provider.url)
        follower = Follower()
        reading = asyncio.create_task(follow(live_server.client, site, follower))
        asking = asyncio.create_task(ask(site, "What does delivery cost?"))
        await follower.until_text("First")
        await operators.execute(
            "update models set input_price = input_price * 10, output_price = output_price * 10"
        )
        gate.set()
        first = (await asking).json()
        reading.cancel()
        assert first["assistant_message"]["content"] == "First words and last ones."
        old = 50 * PRICE // 10**6
        assert first["meta"]["usage"]["cost_usd"] == pytest.approx(old / 1e9)
        assert await read_spent(operators, site) == {"amount": old, "requests": 1, "settled": 1}
        second = (await ask(site, "What does delivery cost?")).json()
        assert second["meta"]["usage"]["cost_usd"] == pytest.approx(old * 10 / 1e9)
        spent = await read_spent(operators, site)
        assert spent == {"amount": old * 11, "requests": 2, "settled": 2}
        assert len(provider.requests) == 2


async def test_next_model(live_server: Live, operators: Database, provider: ScriptedModel) -> None:
    """The next model is tried if nothing was sent and nothing may have been paid."""
    async with ScriptedModel() as other:
        site = await make_site(live_server, operators, handler="agent")
        closed = "http://127.0.0.1:9/v1"
        await give_model(operators, site.tenant_id, closed, provider.url, other.url)
        body = (await ask(site, "say 2 words in 0 s")).json()
        assert body["assistant_message"]["content"] == words(2)
        assert (len(provider.requests), len(other.requests)) == (1, 0)
        body = (await ask(site, "fail 500")).json()
        assert body["meta"]["reason"] == "model_failed"
        assert (len(provider.requests), len(other.requests)) == (2, 0)
        await ask(site, "fail 429")
        assert (len(provider.requests), len(other.requests)) == (3, 1)


async def test_budget(live_server: Live, operators: Database, provider: ScriptedModel) -> None:
    """At the cap the knowledge answers, the model is not asked, and an incident says so."""
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url, caps={"cap_day": 1000})
    body = (await ask(site, "What does delivery cost?")).json()
    assert (body["meta"]["source"], body["meta"]["reason"]) == ("knowledge", "budget")
    assert body["assistant_message"]["content"] == "Delivery costs 99 crowns."
    assert provider.requests == []
    kinds = [row["kind"] for row in await operators.all("select kind from incidents")]
    assert kinds == ["budget_100"]
    failed = await ask(site, "What does delivery cost?", on_failure="error")
    assert failed.status_code == 402


async def test_stop(shop: Site, provider: ScriptedModel, operators: Database) -> None:
    """A stop ends the request to the provider; what was said so far is stored and paid."""
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    await shop.send("say 300 words in 60 s")
    await follower.until_text("word3")
    path = f"/widget/conversations/{shop.conversation_id}/stop"
    stopped = await shop.live.client.post(path, headers=shop.headers())
    assert stopped.status_code == 204
    await follower.until(["user", "assistant"])
    reading.cancel()
    message = follower.messages[-1]
    assert message["metadata"]["stopped"] is True
    assert words(300).startswith(message["content"])
    await provider.until(lambda: provider.left == 1)
    async with asyncio.timeout(30):
        while (await read_spent(operators, shop))["settled"] != 1:  # noqa: ASYNC110  # background
            await asyncio.sleep(0.02)
    assert len(provider.requests) == 1


async def test_every_word_once(shop: Site, provider: ScriptedModel) -> None:
    """Edge case 54: the text of the stream is that of the stored answer, piece by piece."""
    follower = Follower()
    reading = asyncio.create_task(follow(shop.live.client, shop, follower))
    await shop.send("say 100 words in 1 s")
    await follower.until(["user", "assistant"])
    reading.cancel()
    deltas = [one["delta"] for one in follower.frames if one["type"] == "text-delta"]
    assert "".join(deltas) == words(100) == follower.messages[1]["content"]
    # First words at once, the others in pieces.
    assert 2 < len(deltas) < 60
    assert len(provider.requests) == 1


@pytest.mark.parametrize("decision", ["confirm", "decline"])
async def test_acting_tool(
    live_server: Live, operators: Database, provider: ScriptedModel, decision: str
) -> None:
    """An acting tool is called only after the visitor has confirmed it, and only once."""
    site = await make_site(live_server, operators, handler="agent")
    acting = ["search_knowledge"]
    await give_model(operators, site.tenant_id, provider.url, acting_tools=acting)
    text = 'call search_knowledge {"query": "open"} then repeat From 9 to 17.'
    body = (await ask(site, text)).json()
    message = body["assistant_message"]
    offered = message["metadata"]["confirmation"]
    assert offered["arguments"] == {"query": "open"}
    assert message["content"] == "Shall I do this?"
    assert body["meta"]["tools_used"] == []
    answers = []
    for _ in range(2):
        sent = await site.send("Yes", metadata={decision: offered["id"]})
        assert sent.status_code == 200
        waited = await live_server.client.post("/widget/messages/assistant", headers=site.headers())
        answers.append(waited.json())
    results = [_find_result(request) for request in provider.requests[1:]]
    if decision == "confirm":
        assert "From 9 to 17." in results[0]
    else:
        assert results[0] == "The visitor declined."
    assert results[1] == "This decision does not count any more; do not repeat the action."
    events = [event["outcome"] for event in live_server.events("tool_called")]
    assert events == (["ok"] if decision == "confirm" else [])
    # The offer, and one for each of the visitor's two decisions.
    assert len(provider.requests) == 3


def _find_result(request: dict[str, Any]) -> str:
    [result] = [message for message in request["messages"] if message["role"] == "tool"]
    return str(result["content"])


async def test_canary(shop: Site, operators: Database, provider: ScriptedModel) -> None:
    """Edge case 66: a model that gives its secret away is not heard."""
    row = await operators.one("select canary from agent_settings")
    assert row is not None
    body = (await ask(shop, f"{COVERED}\nrepeat My secret is {row['canary']} so there.")).json()
    assert body["meta"]["reason"] == "model_failed"
    assert row["canary"] not in body["assistant_message"]["content"]
    assert len(shop.live.events("canary_tripped")) == 1
    assert len(provider.requests) == 1


async def test_links(shop: Site, provider: ScriptedModel) -> None:
    """Edge case 66: no link to a host that is not the tenant's reaches the visitor."""
    text = (
        f"{COVERED}\nrepeat See [this](https://evil.example/x), ![i](https://evil.example/i.png) "
        f"and {shop.origin}/faq"
    )
    content = (await ask(shop, text)).json()["assistant_message"]["content"]
    assert "evil" not in content
    assert f"{shop.origin}/faq" in content
    assert len(provider.requests) == 1


async def test_unreadable_key(
    live_server: Live, operators: Database, provider: ScriptedModel
) -> None:
    """A provider's key that cannot be decrypted: the knowledge answers, and the log says why."""
    site = await make_site(live_server, operators, handler="agent")
    await give_model(operators, site.tenant_id, provider.url)
    await operators.execute("update models set key = 'no ciphertext of ours'")
    body = (await ask(site, "What does delivery cost?")).json()
    assert body["meta"]["source"] == "knowledge"
    assert provider.requests == []
    assert len(live_server.events("model_key_unreadable")) == 1
