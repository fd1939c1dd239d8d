"""One small request to a model, which shows whether it works."""

from dataclasses import dataclass
from time import monotonic

from hlas.agent.providers.chat import ChatClient, ModelError, encode
from hlas.agent.providers.models import Model

SECONDS = 30.0
# Enough for a model that reasons before it says yes.
MOST_TOKENS = 256
MESSAGES = ({"role": "user", "content": "Answer with the word: yes"},)

_PROBLEMS = {
    "refused": "nothing answers at its address",
    "timeout": f"no answer within {SECONDS:.0f} seconds",
    "cut": "the connection was cut in mid-answer",
    "garbage": "the answer is not that of an OpenAI-compatible address; does it end in /v1?",
    "empty": "the answer is empty",
    "too_long": "the answer does not end",
    "error_frame": "the provider reports an error in mid-answer",
    "status_402": "the account at the provider has no money left (402)",
    "status_400": "the provider does not accept the request (400)",
    "status_401": "the provider does not accept the key (401)",
    "status_403": "the provider does not allow it with this key (403)",
    "status_404": "the provider has no such model or address (404)",
    "status_429": "the provider refuses more requests for now (429)",
}


@dataclass(frozen=True, slots=True)
class Ping:
    """Times in milliseconds; tokens and cost as far as the provider reports them."""

    first_token_ms: int | None
    total_ms: int
    input_tokens: int | None
    output_tokens: int | None
    # In nano-dollars.
    cost: int | None
    # Empty: it works.
    problem: str = ""


async def ping(model: Model) -> Ping:
    started = monotonic()
    pieces: list[float] = []
    client = ChatClient()
    try:
        body = encode(model, MESSAGES, (), MOST_TOKENS)
        done = await client.complete(
            model, body, lambda _: pieces.append(monotonic()), seconds=SECONDS
        )
    except ModelError as error:
        total = round((monotonic() - started) * 1000)
        return Ping(None, total, None, None, None, _explain(error.code))
    finally:
        await client.close()
    tokens = done.tokens
    return Ping(
        first_token_ms=round((pieces[0] - started) * 1000) if pieces else None,
        total_ms=round((monotonic() - started) * 1000),
        input_tokens=tokens.input if tokens else None,
        output_tokens=tokens.output if tokens else None,
        cost=model.price(tokens.input, tokens.output) if tokens else None,
    )


def _explain(code: str) -> str:
    if code.startswith("status_"):
        return _PROBLEMS.get(code, f"the provider answers {code.removeprefix('status_')}")
    return _PROBLEMS.get(code, f"it failed: {code}")
