"""POST /widget/agent/reply: a message and its answer in one request."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from administration import make_desk
from factories import Live, Site
from hlas.agent import Answer, Listener, Question, Reason, Source, Usage
from hlas.store.db import Database
from scripted_agent import ScriptedAgent, words

REPLAYED = "idempotent-replayed"


async def reply(
    site: Site, text: str | None = None, key: str | None = None, **fields: Any
) -> httpx.Response:
    extra = {"Idempotency-Key": key} if key is not None else {}
    content = {**({} if text is None else {"text": text}), **fields}
    return await site.live.client.post(
        "/widget/agent/reply", headers={**site.headers(), **extra}, json=content, timeout=60
    )


async def insist(site: Site, text: str, key: str) -> httpx.Response:
    """Ask again when a busy machine could not serve it, as the response says."""
    async with asyncio.timeout(60):
        response = await reply(site, text, key)
        while response.status_code == 503:
            await asyncio.sleep(int(response.headers["retry-after"]))
            response = await reply(site, text, key)
    return response


def at(live: Live, site: Site) -> Site:
    """The same visitor at another worker."""
    return Site(live, site.slug, site.tenant_id, site.origin, site.session)


class Modelled:
    """Answers as an agent with a model does."""

    def __init__(self, reason: Reason | None = None) -> None:
        self.reason = reason
        self.asked: list[Question] = []

    async def answer(self, question: Question, listener: Listener) -> Answer:
        self.asked.append(question)
        return Answer(
            "It costs 10 [1].",
            "knowledge" if self.reason else "agent",
            0.8,
            sources=(Source(1, "Prices", "https://shop.example/prices"),),
            reason=self.reason,
            steps=2,
            tools_used=("get_product",),
            usage=Usage(100, 20, 161_000),
            trace=({"kind": "model", "name": "m"},) if question.options.debug else (),
        )


def install(live: Live, agent: Modelled) -> Modelled:
    live.app.state.services.runner._agent = agent
    return agent


async def test_answer(answered: Site) -> None:
    """The message is stored, answered, and both are returned with what the answer took."""
    agent = install(answered.live, Modelled())
    response = await reply(
        answered, " What does it cost? ", metadata={"page": "/"}, options={"max_steps": 3}
    )
    assert response.status_code == 200, response.text
    body = response.json()
    history = await answered.history()
    assert [body["user_message"], body["assistant_message"]] == history["messages"]
    assert body["conversation_id"] == answered.conversation_id
    assert body["user_message"]["content"] == "What does it cost?"
    assert body["user_message"]["metadata"] == {"page": "/", "agent_options": {"max_steps": 3}}
    assert body["meta"] == {
        "request_id": response.headers["x-request-id"],
        "run_id": body["user_message"]["id"],
        "steps": 2,
        "tools_used": ["get_product"],
        "source": "agent",
        "usage": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.000161},
    }
    source = {"number": 1, "title": "Prices", "url": "https://shop.example/prices"}
    assert body["assistant_message"]["metadata"]["sources"] == [source]
    assert agent.asked[0].options.max_steps == 3
    [finished] = answered.live.events("run_finished")
    assert (finished["steps"], finished["tools"], finished["cost_usd"]) == (2, 1, 0.000161)


async def test_no_text(answered: Site) -> None:
    """Without a text the visitor's last message is answered, and a key replays the response."""
    install(answered.live, Modelled())
    assert (await reply(answered)).json()["detail"] == "user_message_not_found"
    sent = await answered.send("What does it cost?")
    first = await reply(answered, key="k")
    assert first.json()["user_message"]["id"] == sent.json()["message_id"]
    second = await reply(answered, key="k")
    assert (second.content, second.headers[REPLAYED]) == (first.content, "true")
    other = await reply(answered, key="k", options={"on_failure": "error"})
    assert other.json()["detail"] == "idempotency_key_conflict"


async def test_equal_posts(visit: Site, workers: list[Live]) -> None:
    """Edge case 55: 32 equal posts over two workers: one run, 32 equal answers."""
    sites = [visit, at(workers[1], visit)]
    text = "say 10 words in 0.3 s"
    posts = [insist(sites[number % 2], text, key="k") for number in range(32)]
    responses = await asyncio.gather(*posts)
    assert {response.status_code for response in responses} == {200}
    assert len({response.content for response in responses}) == 1
    assert sum(REPLAYED not in response.headers for response in responses) == 1
    agents = [live.app.state.services.runner._agent for live in workers]
    assert sum(agent.requests for agent in agents) == 1
    assert responses[0].json()["assistant_message"]["content"] == words(10)
    conflict = await reply(visit, "another text", key="k")
    assert (conflict.status_code, conflict.json()["detail"]) == (409, "idempotency_key_conflict")


@pytest.mark.settings(rate_limit_messages_conversation="1/h")
async def test_retry_over_the_limit(answered: Site) -> None:
    """Edge case 55: a retry is never refused by a limit; anything new is."""
    first = await reply(answered, "hello", key="k")
    again = await reply(answered, "hello", key="k")
    assert (again.status_code, again.content) == (200, first.content)
    assert (await reply(answered, "hello", key="other")).status_code == 429
    assert (await reply(answered, "hello")).status_code == 429
    assert len((await answered.history())["messages"]) == 2


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("model_failed", 502, "model_failed"),
        ("steps", 502, "model_failed"),
        ("model_timeout", 504, "model_timeout"),
        ("budget", 402, "budget_used_up"),
    ],
)
async def test_failures(answered: Site, reason: Reason, status: int, code: str) -> None:
    """The knowledge answers and the reason is given; who wants an error gets one."""
    install(answered.live, Modelled(reason))
    body = (await reply(answered, "hello")).json()
    assert (body["meta"]["source"], body["meta"]["reason"]) == ("knowledge", reason)
    failed = await reply(answered, "hello again", key="k", options={"on_failure": "error"})
    assert (failed.status_code, failed.json()["detail"]) == (status, code)
    again = await reply(answered, "hello again", key="k", options={"on_failure": "error"})
    assert (again.status_code, again.json()["detail"]) == (status, code)
    roles = [message["role"] for message in (await answered.history())["messages"]]
    assert roles == ["user", "assistant", "user", "assistant"]


async def test_debug(answered: Site, operators: Database) -> None:
    """A trace needs the tenant's consent; without it nothing is stored."""
    install(answered.live, Modelled())
    refused = await reply(answered, "hello", options={"debug": True})
    assert (refused.status_code, refused.json()["detail"]) == (403, "debug_not_allowed")
    assert (await answered.history())["messages"] == []
    await operators.execute(
        "insert into agent_settings (tenant_id, is_debug) values ($1, true)", answered.tenant_id
    )
    body = (await reply(answered, "hello", options={"debug": True})).json()
    assert body["trace"] == [{"kind": "model", "name": "m"}]
    assert "trace" not in (await reply(answered, "hello")).json()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"text": " "}, 400, "invalid_text"),
        ({"text": "x" * 2001}, 422, "text_too_long"),
        ({"text": 5}, 422, "invalid_request"),
        ({"metadata": {"a": 1}}, 422, "invalid_request"),
        ({"options": {"max_steps": 1}}, 422, "invalid_request"),
        ({"text": "a", "options": {"max_steps": 6}}, 422, "invalid_request"),
        ({"text": "a", "options": {"max_steps": 0}}, 422, "invalid_request"),
        ({"text": "a", "options": {"timeout_ms": 60_001}}, 422, "invalid_request"),
        ({"text": "a", "options": {"max_history_messages": -1}}, 422, "invalid_request"),
        ({"text": "a", "options": {"on_failure": "panic"}}, 422, "invalid_request"),
        ({"text": "a", "options": {"model": "x"}}, 422, "invalid_request"),
        ({"text": "a", "tenant_id": "x"}, 422, "invalid_request"),
        ([], 422, "invalid_request"),
    ],
)
async def test_bad_requests(answered: Site, body: Any, status: int, code: str) -> None:
    """A bad request is a clear error, and stores nothing."""
    response = await answered.live.client.post(
        "/widget/agent/reply", headers=answered.headers(), json=body
    )
    assert (response.status_code, response.json()["detail"]) == (status, code)
    assert (await answered.history())["messages"] == []


async def test_forged_metadata(answered: Site) -> None:
    """Options that a visitor puts into the metadata of a message are checked, or ignored."""
    agent = install(answered.live, Modelled())
    forged = {"agent_options": {"max_steps": 99, "debug": "yes"}, "confirm": ["x"], "decline": 7}
    await answered.send("hello", metadata=forged)
    assert (await reply(answered)).status_code == 200
    [question] = agent.asked
    assert question.options.max_steps is None
    assert (question.confirmed, question.declined) == (None, None)


async def test_taken_over(answered: Site, operators: Database) -> None:
    """While a person answers, the message is stored and the response says who answers."""
    desk = await make_desk(answered.live, operators)
    path = f"/tenants/{answered.slug}/conversations/{answered.conversation_id}/handler"
    assert (await desk.ask("PUT", path, json={"handler": "human"})).status_code == 200
    response = await reply(answered, "hello")
    assert (response.status_code, response.json()["detail"]) == (409, "taken_over")
    assert [one["role"] for one in (await answered.history())["messages"]] == ["user"]
    events = await stream(answered, "hello?")
    assert [event["type"] for event in events[:-1]] == ["error"]
    assert events[-1] == "[DONE]"


async def stream(site: Site, text: str | None, key: str | None = None) -> list[Any]:
    extra = {"Idempotency-Key": key} if key is not None else {}
    headers = {**site.headers(), "Accept": "text/event-stream", **extra}
    content = {} if text is None else {"text": text}
    async with site.live.client.stream(
        "POST", "/widget/agent/reply", headers=headers, json=content, timeout=60
    ) as response:
        body = (await response.aread()).decode()
        assert response.status_code == 200, body
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    datas = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else orjson.loads(data) for data in datas]


async def test_stream(visit: Site, workers: list[Live]) -> None:
    """The answer as it is made, on any worker, then the stored message and the end."""
    for site in (visit, at(workers[1], visit)):
        *events, end = await stream(site, "say 10 words in 0.5 s")
        assert end == "[DONE]"
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["start", "text-start"]
        assert kinds[-3:] == ["text-end", "finish", "data-message"]
        said = "".join(event["delta"] for event in events if event["type"] == "text-delta")
        assert said == words(10) == events[-1]["data"]["content"]
        assert events[0]["messageId"] == events[-1]["data"]["id"]


async def test_stream_of_a_stored_answer(visit: Site, workers: list[Live]) -> None:
    """A retry after the answer gets it whole, and asks nobody."""
    agent: ScriptedAgent = workers[0].app.state.services.runner._agent
    await stream(visit, "say 3 words in 0.1 s", key="k")
    requests = agent.requests
    *events, end = await stream(visit, "say 3 words in 0.1 s", key="k")
    kinds = ["start", "text-start", "text-delta", "text-end", "finish", "data-message"]
    assert [event["type"] for event in events] == kinds
    assert (events[2]["delta"], end, agent.requests) == (words(3), "[DONE]", requests)


async def test_stream_waits_for_its_own_run(visit: Site) -> None:
    """The answer to an earlier message is not taken for the answer to this one."""
    await visit.send("say 20 words in 1 s")
    *events, end = await stream(visit, "say 4 words in 0.1 s")
    said = "".join(event["delta"] for event in events if event["type"] == "text-delta")
    assert (said, end) == (words(4), "[DONE]")
    assert [event["type"] for event in events].count("data-message") == 1


async def test_stream_that_is_stopped(visit: Site) -> None:
    """A stop before the first word ends the stream, and so does a closed conversation."""

    async def stop() -> None:
        path = f"/widget/conversations/{visit.conversation_id}"
        async with asyncio.timeout(30):
            while not (await visit.history())["messages"]:  # noqa: ASYNC110  # stored elsewhere
                await asyncio.sleep(0.02)
        await visit.live.client.post(f"{path}/stop", headers=visit.headers())

    events, _ = await asyncio.gather(stream(visit, "say 1 words in 30 s"), stop())
    assert [event if event == "[DONE]" else event.get("errorText") for event in events][-2:] == [
        "stopped",
        "[DONE]",
    ]


async def test_foreign_token(answered: Site) -> None:
    """Without a session there is nothing, whatever the body says."""
    headers = {"Origin": answered.origin, "Authorization": "Bearer x"}
    response = await answered.live.client.post(
        "/widget/agent/reply", headers=headers, json={"text": "hello"}
    )
    assert (response.status_code, response.json()["detail"]) == (401, "invalid_token")
