"""Vectors of texts by the built-in model, kept on disk between runs."""

import hashlib
from pathlib import Path

import numpy as np

from hlas.knowledge.embedding.matrices import Matrix
from hlas.knowledge.embedding.model import Model, load_model
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking import Meaning
from hlas.knowledge.ranking.lexicon import translate
from hlas.knowledge.ranking.meaning import list_texts

CACHE = Path(__file__).parent / ".cache" / "vectors.npz"


class Vectors:
    def __init__(self, cache: Path = CACHE) -> None:
        self._cache = cache
        self._model: Model | None = None
        self._known: dict[str, np.ndarray] = {}
        self._entries: dict[Entry, np.ndarray] = {}
        self._is_new = False
        if cache.exists():
            with np.load(cache) as stored:
                self._known = dict(zip(stored["keys"].tolist(), stored["rows"], strict=True))

    def embed(self, text: str) -> np.ndarray:
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        if key not in self._known:
            self._model = self._model or load_model(None)
            found = self._model.embed(text, is_question=False)
            # As the product stores them.
            self._known[key] = found.astype(np.float16).astype(np.float32)
            self._is_new = True
        return self._known[key]

    def embed_entry(self, entry: Entry) -> np.ndarray:
        """The first row is that of its question."""
        if entry not in self._entries:
            self._entries[entry] = np.stack([self.embed(text) for text in list_texts(entry)])
        return self._entries[entry]

    def save(self) -> None:
        if self._is_new:
            self._cache.parent.mkdir(exist_ok=True)
            np.savez(self._cache, keys=[*self._known], rows=np.stack([*self._known.values()]))
            self._is_new = False


class Meanings:
    """What the embedding process says of the questions about a set of entries."""

    def __init__(self, vectors: Vectors, entries: dict[str, Entry]) -> None:
        self._vectors = vectors
        self._matrix = Matrix()
        self._known: dict[str, Meaning] = {}
        for entry_id, entry in entries.items():
            rows = vectors.embed_entry(entry)
            self._matrix.put([entry_id], [len(rows)], rows)

    def compare(self, text: str) -> Meaning:
        if text not in self._known:
            ids, scores = self._matrix.search(self._vectors.embed(translate(text)))
            self._known[text] = dict(zip(ids, scores, strict=True))
        return self._known[text]
