"""What an answer is taken from, and what the visitor may have meant."""

import asyncio
from typing import Any

import pytest

from factories import Site
from hlas.agent import Answer, AnswerSource, Listener, Question
from hlas.store.db import Database
from streams import Follower, open_stream

MEANT = ("When do you open?", "Kdy máte otevřeno?")


@pytest.mark.parametrize("source", ["agent", "knowledge", "smalltalk", "fallback"])
async def test_all_agree(answered: Site, operators: Database, source: AnswerSource) -> None:
    """The reply, both ways to ask for it, history and stream tell the same source and the same
    suggestions; what met the fallback is an unanswered question, nothing else is.
    """
    suggestions = MEANT if source == "fallback" else ()

    class Agent:
        async def answer(self, question: Question, listener: Listener) -> Answer:
            return Answer("An answer.", source, 0.5, suggestions=suggestions)

    services = answered.live.app.state.services
    services.runner._agent = Agent()
    wanted = (source, [{"text": text} for text in suggestions])

    def tell(given: Any) -> tuple[str, Any]:
        return given["source"], given["suggestions"]

    await answered.send("Are you there?")
    client, headers = answered.live.client, answered.headers()
    reply = (await client.post("/widget/messages/assistant", headers=headers)).json()
    assert tell(reply) == wanted
    stored = (await answered.history())["messages"]
    assert [tell(one["metadata"]) for one in stored if one["role"] == "assistant"] == [wanted]
    follower = Follower()
    async with open_stream(client, answered, follower) as response:
        async for data in response.aiter_raw():
            follower.feed(data)
            if len(follower.messages) == len(stored):
                break
    assert tell(follower.messages[1]["metadata"]) == wanted
    whole = await client.post(
        "/widget/agent/reply", headers=headers, json={"text": "And tomorrow?"}
    )
    assert whole.json()["meta"]["source"] == source
    assert tell(whole.json()["assistant_message"]["metadata"]) == wanted
    await asyncio.gather(*services.runner._tasks)
    rows = await operators.all("select seq, reason from unanswered order by seq")
    recorded = [(row["seq"], row["reason"]) for row in rows]
    assert recorded == ([(1, "fallback"), (3, "fallback")] if source == "fallback" else [])
