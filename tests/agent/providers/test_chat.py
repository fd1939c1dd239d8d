"""The model client against a scripted provider over HTTP: what it sends, answers and faults."""

import asyncio
import io
import traceback
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

import log_scan
from asking import KEY, Asked, ignore, make_body, make_model, open_client
from hlas.agent.providers.chat import ChatClient, Completion, ModelError, Tokens, ToolCall, encode
from hlas.agent.providers.completions import CHARACTERS_PER_TOKEN
from model_scripts import (
    DONE,
    Call,
    Cut,
    Endless,
    Finish,
    Hang,
    Head,
    Refuse,
    Say,
    Send,
    Step,
    follow_text,
    frame,
)
from scripted_agent import words
from scripted_model import ScriptedModel, run_process

TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as opened:
        yield opened


@pytest_asyncio.fixture
async def client() -> AsyncIterator[ChatClient]:
    async with open_client() as opened:
        yield opened


def play(provider: ScriptedModel, *steps: Step) -> None:
    provider.script = lambda _: steps


async def test_request(provider: ScriptedModel, client: ChatClient) -> None:
    """The request has the form that providers document, with the key."""
    messages = [{"role": "system", "content": "Buď stručný."}, {"role": "user", "content": "č"}]
    body = encode(make_model(""), messages, [TOOL], 64)
    await client.complete(make_model(f"{provider.url}/"), body, ignore, seconds=30)
    assert provider.requests == [
        {
            "model": "scripted-1",
            "messages": messages,
            "max_tokens": 64,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [TOOL],
        }
    ]
    (head,) = provider.heads
    assert head["authorization"] == f"Bearer {KEY}"
    assert head["content-type"] == "application/json"
    assert head["accept-encoding"] == "identity"
    assert head["content-length"] == str(len(body))


async def test_request_without_key_and_tools(provider: ScriptedModel, client: ChatClient) -> None:
    """A local server needs no key; an empty list of tools, which OpenAI refuses, is not sent."""
    body = make_body("say 1 words in 0 s")
    await client.complete(make_model(provider.url, key=""), body, ignore, seconds=30)
    assert "authorization" not in provider.heads[0]
    assert "tools" not in provider.requests[0]


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://shop.openai.azure.com/openai/v1/", "max_completion_tokens"),
        ("https://api.mistral.ai/v1", "max_tokens"),
        ("http://127.0.0.1:11434/v1", "max_tokens"),
    ],
)
def test_limit_of_tokens(url: str, field: str) -> None:
    """Newer models of OpenAI refuse `max_tokens`; other providers know nothing else."""
    body = orjson.loads(encode(make_model(url), [], [], 7))
    assert {name: body[name] for name in body if name.startswith("max")} == {field: 7}


async def test_answer(provider: ScriptedModel, client: ChatClient) -> None:
    """The text is given as it comes, before the answer is complete."""
    asked = Asked(client, provider.url, "say 20 words in 0.2 s")
    await asked.spoke.wait()
    assert not asked.task.done()
    tokens = Tokens(len(asked.body) // 4 + 1, 20)
    assert await asked.task == Completion(words(20), (), "stop", tokens)
    assert asked.text == words(20)
    assert (len(provider.requests), provider.billed, provider.left) == (1, 1, 0)


@pytest.mark.parametrize("piece", [1, 7])
async def test_cut_into_pieces(provider: ScriptedModel, client: ChatClient, piece: int) -> None:
    """A stream that comes in pieces of some bytes gives the same completion and text."""
    provider.piece = piece
    asked = Asked(client, provider.url, 'call find {"q": "ž"} repeat Příliš žluťoučký 🐛 [1]')
    text = "Příliš žluťoučký 🐛 [1]"
    tokens = Tokens(len(asked.body) // 4 + 1, 14)
    calls = (ToolCall("call_0", "find", '{"q": "ž"}'),)
    assert await asked.task == Completion(text, calls, "tool_calls", tokens)
    assert (asked.text, len(provider.requests)) == (text, 1)


@pytest.mark.parametrize("usage", ["once", "twice", "every"])
async def test_usage(provider: ScriptedModel, client: ChatClient, usage: str) -> None:
    """Edge case 63: the usage that is reported last counts."""
    asked = Asked(client, provider.url, f"usage {usage} say 3 words in 0 s")
    assert (await asked.task).tokens == Tokens(len(asked.body) // 4 + 1, 3)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("usage", ["none", "negative", "absurd"])
async def test_no_usage(provider: ScriptedModel, client: ChatClient, usage: str) -> None:
    """Edge case 63: without a sensible usage there is an answer all the same."""
    completion = await Asked(client, provider.url, f"usage {usage} say 3 words in 0 s").task
    assert completion == Completion(words(3), (), "stop", None)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_early_finish(provider: ScriptedModel, client: ChatClient, finish: str) -> None:
    """Edge case 64: an answer that the provider ends early is an answer, and says why."""
    completion = await Asked(client, provider.url, f"finish {finish} say 3 words in 0 s").task
    assert (completion.text, completion.finish) == (words(3), finish)
    assert len(provider.requests) == 1


async def test_steps_of_a_run(provider: ScriptedModel, client: ChatClient) -> None:
    """The scripted model goes on after a tool's result, and stops when it has no tools left."""
    user: dict[str, object] = {"role": "user", "content": 'call find {"q": 1} forever'}
    model = make_model(provider.url)
    first = await client.complete(model, encode(model, [user], [TOOL], 9), ignore, seconds=30)
    assert first.calls == (ToolCall("call_0", "find", '{"q": 1}'),)
    result: dict[str, object] = {"role": "tool", "tool_call_id": "call_0", "content": "nothing"}
    messages: list[dict[str, object]] = [user, first.to_message(), result]
    again = await client.complete(model, encode(model, messages, [TOOL], 9), ignore, seconds=30)
    assert again.calls == first.calls
    last = await client.complete(model, encode(model, messages, [], 9), ignore, seconds=30)
    assert (last.text, last.calls, last.finish) == ("Done.", (), "stop")
    # The answers are complete, so one connection is enough.
    assert (len(provider.requests), provider.connections) == (3, 1)


FAULTS = {
    "fail 400": ("status_400", False, True),
    "fail 404": ("status_404", False, False),
    "fail 408": ("status_408", False, True),
    "fail 401": ("status_401", False, False),
    "fail 429 after 7": ("status_429", False, False),
    "fail 500": ("status_500", False, True),
    "fail 503": ("status_503", False, True),
    "fail cut": ("cut", False, True),
    "say 3 words in 0 s fail cut": ("cut", False, True),
    "say 3 words in 0 s finish none": ("cut", False, True),
    "fail garbage": ("garbage", False, True),
    "say 3 words in 0 s fail garbage": ("garbage", False, True),
    "fail error": ("error_frame", False, True),
    "say 3 words in 0 s fail error": ("error_frame", False, True),
    "fail endless": ("too_long", False, True),
    "fail empty": ("empty", False, True),
}


@pytest.mark.parametrize("text", FAULTS)
async def test_fault(provider: ScriptedModel, client: ChatClient, text: str) -> None:
    """Edge case 64: each fault of a provider is the stated error, after exactly one request."""
    asked = Asked(client, provider.url, text)
    assert await asked.fail() == FAULTS[text]
    assert asked.text in {words(3), ""} or text == "fail endless"
    assert len(asked.text) <= 100 * CHARACTERS_PER_TOKEN
    assert len(provider.requests) == 1
    # The client is of use afterwards.
    assert (await Asked(client, provider.url, "say 3 words in 0 s").task).text == words(3)
    assert len(provider.requests) == 2


@pytest.mark.parametrize("before", ["", "say 3 words in 0 s "])
async def test_hang(provider: ScriptedModel, client: ChatClient, before: str) -> None:
    """Edge case 64: silence before the first byte or in mid-answer ends at the time limit."""
    asked = Asked(client, provider.url, f"{before}fail hang", seconds=2)
    assert await asked.fail() == ("timeout", True, True)
    assert asked.text == (words(3) if before else "")
    await provider.until(lambda: provider.left == 1)
    assert len(provider.requests) == 1


async def test_redirect(provider: ScriptedModel, client: ChatClient) -> None:
    """A redirect, which would take the key elsewhere, is not followed."""
    play(provider, Refuse(307, (("Location", f"{provider.url}/chat/completions"),)))
    assert await Asked(client, provider.url).fail() == ("status_307", False, True)
    assert len(provider.requests) == 1


ENDLESS: dict[str, Iterable[Step]] = {
    "line": [Endless(b"data: " + b"x" * 10_000)],
    "comments": [Endless(b": still thinking\n\n" * 1000)],
    "calls": [Call("find")] * 9,
    "arguments": [Call("find", '"' + "x" * 2**16 + '"')],
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_endless(provider: ScriptedModel, client: ChatClient, what: str) -> None:
    """Edge case 64: what has no end is cut off, whatever it is."""
    play(provider, *ENDLESS[what])
    assert await Asked(client, provider.url).fail() == ("too_long", False, True)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_not_streamed(provider: ScriptedModel, client: ChatClient, is_chunked: bool) -> None:  # noqa: FBT001
    """A server that ignores `stream` is understood, with and without a length of the body."""
    message = {"message": {"content": "Dobrý den"}, "finish_reason": "length"}
    usage = {"prompt_tokens": 5, "completion_tokens": 6}
    answer = orjson.dumps({"choices": [message], "usage": usage})
    play(provider, Head(is_chunked=is_chunked), Send(answer), Finish(None))
    asked = Asked(client, provider.url)
    assert await asked.task == Completion("Dobrý den", (), "length", Tokens(5, 6))
    assert (asked.text, len(provider.requests)) == ("Dobrý den", 1)


async def test_page_instead_of_an_answer(provider: ScriptedModel, client: ChatClient) -> None:
    """The page of a hotel's network is not an empty answer."""
    play(provider, Head("text/html"), Send(b"<html>\nSign in\n</html>"), Finish(None))
    assert await Asked(client, provider.url).fail() == ("garbage", False, True)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("end", [b"", DONE])
async def test_open_connection_after_the_finish(
    provider: ScriptedModel, client: ChatClient, end: bytes
) -> None:
    """An answer is complete with its finish reason: one that is never closed is not waited for."""
    play(provider, Say("Hello"), Send(frame({}, "stop") + end), Hang)
    clock = asyncio.get_running_loop()
    start = clock.time()
    completion = await Asked(client, provider.url, seconds=600).task
    assert completion == Completion("Hello", (), "stop", None)
    assert clock.time() - start < 60
    await provider.until(lambda: provider.left == 1)
    assert len(provider.requests) == 1


async def test_cut_after_the_finish(provider: ScriptedModel, client: ChatClient) -> None:
    """A connection lost after the finish reason costs the usage only."""
    play(provider, Say("Hello"), Send(frame({}, "stop")), Cut)
    assert await Asked(client, provider.url).task == Completion("Hello", (), "stop", None)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 abc\r\n\r\n"])
async def test_not_http(client: ChatClient, garbage: bytes) -> None:
    """A server of another protocol is named so, and asked once."""
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        asked = Asked(client, f"http://127.0.0.1:{port}")
        assert await asked.fail() == ("garbage", False, True)
        assert requests == 1


@pytest.mark.parametrize("text", ["repeat the secret answer", *FAULTS])
async def test_nothing_is_revealed(
    provider: ScriptedModel,
    client: ChatClient,
    text: str,
    logs: io.BytesIO,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Edge case 41: neither key nor prompt nor answer is in a log, an error or its traceback."""
    prompt = f"{text}\nmy secret question"
    log_scan.hear(KEY, "my secret question", "the secret answer", words(3))
    shown = ""
    asked = Asked(client, provider.url, prompt)
    try:
        await asked.task
    except ModelError as error:
        shown = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))
    assert len(provider.requests) == 1
    log_scan.check(f"{shown}{caplog.text}".replace("\n", " ").encode())


async def test_process(tmp_path: Path, client: ChatClient) -> None:
    """The scripted model as a process: a line in the receipts for each request that is billed."""
    receipts = tmp_path / "receipts"
    with run_process(receipts) as url:
        assert (await Asked(client, url, "say 3 words in 0 s").task).text == words(3)
        assert await Asked(client, url, "fail 429").fail() == ("status_429", False, False)
        assert await Asked(client, url, "fail 500").fail() == ("status_500", False, True)
    assert receipts.read_text() == "say 3 words in 0 s\nfail 500\n"


def test_script() -> None:
    """The script is found in a longer message; its steps are those of the run's requests."""
    user = {
        "role": "user",
        "content": 'Passages: call me.\n\ncall a {"x": {}} call b {} then say 2 words in 0.5 s\n'
        "usage none finish length repeat **this**\nand that",
    }
    answered = [{"role": "assistant", "content": ""}, {"role": "tool", "content": "x"}]
    steps = [follow_text({"messages": [user, *(answered * count)]}) for count in range(4)]
    assert steps[0] == [Call("a", '{"x": {}}'), Call("b")]
    assert steps[1] == [Say("word0 word1", 0.5)]
    assert steps[2][1:] == [Finish("length"), Say("**this**\nand that")]
    assert steps[3] == [Say("Done.")]
    assert follow_text({"messages": [{"role": "user", "content": "Hello!"}]}) == [Say("Done.")]
