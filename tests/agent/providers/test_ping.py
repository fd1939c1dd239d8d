"""The test request of a model: what it reports, and what it says of each fault."""

import pytest

from hlas.agent.providers import ping as pings
from hlas.agent.providers.models import Model
from hlas.agent.providers.ping import ping
from model_scripts import Call, Cut, Finish, Hang, Head, Refuse, Say, Send, Step, Usage
from scripted_model import ScriptedModel

KEY = "sk-provider-0123456789abcdef"


def make_model(url: str) -> Model:
    return Model("gpt", url, "tiny", KEY, 10**9, 2 * 10**9)


async def test_a_model_that_works() -> None:
    """Times, tokens and cost of exactly one request, which has the key and few tokens."""
    async with ScriptedModel(lambda _: [Say("yes"), Usage("9/1")]) as provider:
        done = await ping(make_model(provider.url))
    assert (done.input_tokens, done.output_tokens, done.cost, done.problem) == (9, 1, 11_000, "")
    assert done.first_token_ms is not None
    assert 0 <= done.first_token_ms <= done.total_ms
    [request] = provider.requests
    assert provider.heads[0]["authorization"] == f"Bearer {KEY}"
    assert request["messages"] == list(pings.MESSAGES)


async def test_a_model_that_reports_nothing() -> None:
    """Without usage there are no tokens and no cost, and no first token without text."""
    async with ScriptedModel(lambda _: [Say("yes"), Usage("none")]) as provider:
        done = await ping(make_model(provider.url))
        assert (done.input_tokens, done.cost, done.problem) == (None, None, "")
        provider.script = lambda _: [Call("get_product")]
        assert (await ping(make_model(provider.url))).first_token_ms is None


FAULTS: list[tuple[list[Step], str]] = [
    ([Refuse(401)], "the provider does not accept the key (401)"),
    ([Refuse(404)], "the provider has no such model or address (404)"),
    ([Refuse(429)], "the provider refuses more requests for now (429)"),
    ([Refuse(500)], "the provider answers 500"),
    ([Say("ye"), Cut], "the connection was cut in mid-answer"),
    ([Say("")], "the answer is empty"),
    (
        [Send(b'data: {"error": {"message": "no"}}\n\n')],
        "the provider reports an error in mid-answer",
    ),
    (
        [Head("text/html"), Send(b"<!doctype html><p>Hello</p>"), Finish(None)],
        "the answer is not that of an OpenAI-compatible address; does it end in /v1?",
    ),
]


@pytest.mark.parametrize(("steps", "problem"), FAULTS)
async def test_what_is_wrong(steps: list[Step], problem: str) -> None:
    """Each fault has words of its own, after one request, without the key."""
    async with ScriptedModel(lambda _: steps) as provider:
        done = await ping(make_model(provider.url))
    assert (done.problem, len(provider.requests)) == (problem, 1)
    assert KEY not in str(done)


async def test_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port, and a provider that hangs, which is left after the time limit."""
    assert (await ping(make_model("http://127.0.0.1:1/v1"))).problem == (
        "nothing answers at its address"
    )
    monkeypatch.setattr(pings, "SECONDS", 0.2)
    async with ScriptedModel(lambda _: [Hang]) as provider:
        assert "no answer within" in (await ping(make_model(provider.url))).problem
        await provider.until(lambda: provider.left == 1)
