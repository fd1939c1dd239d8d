"""What makes vectors: the model of the embedding process, or an endpoint that the worker asks."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.protocol import BYTES_PER_NUMBER, Describe, Embed, ProtocolError
from hlas.knowledge.ranking import lexicon, meaning

# Time limits for a question; an endpoint is in another network.
PROCESS_SECONDS = 0.25
ENDPOINT_SECONDS = 1.5
# The time limit for a few texts of entries, which have low priority in the process.
TEXTS_SECONDS = 120.0
MOST_TEXTS = 8


@dataclass(frozen=True, slots=True)
class Model:
    """The model that is used now."""

    # The name under which its vectors are stored.
    name: str
    is_english: bool


class NoVector(Exception):
    """A text has no vector for now; the text is the outcome to count."""


class BadText(Exception):
    """The model cannot read this text, and never will."""


class Embedder(Protocol):
    """Its methods raise OSError, EOFError or ProtocolError if it is away, or NoVector."""

    # How long a question may take, its search included.
    seconds: float

    async def find_model(self) -> Model:
        """What makes vectors now."""

    def forget_model(self) -> None:
        """Ask again next time: the model may have changed."""

    async def embed_question(self, model: Model, tenant_id: str, text: str) -> bytes:
        """A vector, or nothing if the process makes it of the text."""

    async def embed_texts(self, model: Model, tenant_id: str, texts: Sequence[str]) -> list[bytes]:
        """A vector for each text of an entry; may also raise BadText."""


class ProcessEmbedder:
    def __init__(self, socket: Path) -> None:
        self.seconds = PROCESS_SECONDS
        self._socket = socket
        self._model: Model | None = None

    async def find_model(self) -> Model:
        if self._model is None:
            reply, _ = await exchange(self._socket, Describe())
            # Other words for the same entry are other vectors.
            name = f"{reply.model}+{digest_preparation()}" if reply.is_english else reply.model
            self._model = Model(name, reply.is_english)
        return self._model

    def forget_model(self) -> None:
        self._model = None

    async def embed_question(self, model: Model, tenant_id: str, text: str) -> bytes:
        del model, tenant_id, text
        return b""

    async def embed_texts(self, model: Model, tenant_id: str, texts: Sequence[str]) -> list[bytes]:
        del tenant_id
        vectors: list[bytes] = []
        for start in range(0, len(texts), MOST_TEXTS):
            some = list(texts[start : start + MOST_TEXTS])
            async with asyncio.timeout(TEXTS_SECONDS):
                reply, body = await exchange(self._socket, Embed(some))
            if reply.outcome == "failed":
                raise BadText
            # It may have been started again with another model.
            if reply.model != model.name.partition("+")[0]:
                raise NoVector("other_model")
            size = reply.dimensions * BYTES_PER_NUMBER
            if reply.outcome != "ok" or len(body) != size * len(some):
                raise ProtocolError
            vectors += [body[first : first + size] for first in range(0, len(body), size)]
        return vectors


@cache
def digest_preparation() -> str:
    """Changes with whatever turns an entry into English texts."""
    folder = Path(lexicon.__file__).parent
    files = (folder / "czech.tsv", Path(lexicon.__file__), Path(meaning.__file__))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]
