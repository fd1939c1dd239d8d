"""Embeddings of OpenAI-compatible providers: the body of a request, the vectors of its answer."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from hlas.agent.providers.completions import MOST_TOKENS, ModelError, Tokens
from hlas.agent.providers.models import Model
from hlas.knowledge.embedding.protocol import MOST_DIMENSIONS

PATH = "/embeddings"
# Of an answer: a number has at most 25 characters.
BYTES_PER_TEXT = MOST_DIMENSIONS * 25 + 1000


@dataclass(frozen=True, slots=True)
class Embedded:
    """A vector of float16 for each text, and what the provider says it has read."""

    vectors: list[bytes]
    # None: not reported, or nonsense.
    tokens: Tokens | None


def encode(model: Model, texts: Sequence[str]) -> bytes:
    """The body of a request: its length bounds the tokens."""
    return orjson.dumps({"model": model.model, "input": list(texts), "encoding_format": "float"})


def read(answer: bytes, count: int) -> Embedded:
    """The vectors in the order of the texts; anything else than `count` of them is refused."""
    try:
        body = orjson.loads(answer)
        by_index = {item["index"]: _pack(item["embedding"]) for item in body["data"]}
        vectors = [by_index[number] for number in range(count)]
        usage = body.get("usage") or {}
        read_tokens = usage.get("prompt_tokens")
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, OverflowError):
        raise ModelError("garbage") from None
    if len(body["data"]) != count or len({len(vector) for vector in vectors}) != 1:
        raise ModelError("garbage")
    if type(read_tokens) is not int or not 0 < read_tokens <= MOST_TOKENS:
        return Embedded(vectors, None)
    return Embedded(vectors, Tokens(read_tokens, 0))


def _pack(numbers: list[float]) -> bytes:
    """Of length 1, because providers differ in that."""
    length = math.hypot(*numbers)
    if not 1 < len(numbers) <= MOST_DIMENSIONS or not 0 < length < math.inf:
        raise ValueError
    return struct.pack(f"<{len(numbers)}e", *(number / length for number in numbers))
