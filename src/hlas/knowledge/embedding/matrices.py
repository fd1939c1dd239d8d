"""The vectors of tenants that the embedding process keeps, and the search in them."""

from collections import OrderedDict
from collections.abc import Collection, Sequence

import numpy as np

MOST_BYTES = 256 * 2**20
# A tenant with more is ranked without meaning: it would push out all others.
MOST_TENANT_BYTES = 128 * 2**20
# Each number is kept as float16 for rebuilding and as float32 for searching.
BYTES_PER_NUMBER = 6
BYTES_PER_ENTRY = 400
# Also of tenants without vectors, so that counting them stays cheap.
MOST_TENANTS = 2000
NEAREST = 20


class Matrix:
    """The vectors of one tenant: none, one or more for each entry."""

    def __init__(self) -> None:
        self.cursor = 0
        self.is_too_large = False
        self._numbers = 0
        self._dimensions = 0
        self._vectors: dict[str, np.ndarray] = {}
        self._stacked: tuple[list[str], np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def size(self) -> int:
        return self._numbers * BYTES_PER_NUMBER + (len(self) + 1) * BYTES_PER_ENTRY

    def put(self, ids: Sequence[str], counts: Sequence[int], numbers: np.ndarray) -> None:
        """Set the vectors of entries; raise ValueError if they do not fit together."""
        rows = self._split(sum(counts), numbers)
        start = 0
        for entry_id, count in zip(ids, counts, strict=True):
            self._set(entry_id, rows[start : start + count])
            start += count
        if self.size > MOST_TENANT_BYTES:
            self.is_too_large = True
        if self.is_too_large:
            for entry_id in self._vectors:
                self._set(entry_id, rows[:0])

    def _split(self, count: int, numbers: np.ndarray) -> np.ndarray:
        rows = numbers.reshape(count, -1) if count else numbers.reshape(0, self._dimensions)
        if self._dimensions not in {0, rows.shape[1]}:
            raise ValueError
        self._dimensions = rows.shape[1]
        return rows

    def _set(self, entry_id: str, rows: np.ndarray) -> None:
        old = self._vectors.get(entry_id)
        self._numbers += rows.size - (0 if old is None else old.size)
        # A copy: the view would keep the whole message.
        self._vectors[entry_id] = rows.copy()
        self._stacked = None

    def keep(self, ids: Collection[str]) -> None:
        for entry_id in [one for one in self._vectors if one not in ids]:
            self._numbers -= self._vectors.pop(entry_id).size
            self._stacked = None

    def search(self, vector: np.ndarray) -> tuple[list[str], list[float]]:
        """The nearest entries and their likeness, best first, each by its best vector."""
        ids, starts, rows = self._stack()
        if not ids:
            return [], []
        scores = np.maximum.reduceat(rows @ vector, starts)
        best = np.argsort(-scores)[:NEAREST]
        return [ids[one] for one in best], [float(scores[one]) for one in best]

    def _stack(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        if self._stacked is None:
            filled = {one: rows for one, rows in self._vectors.items() if len(rows)}
            ends = np.cumsum([0, *map(len, filled.values())])
            rows = np.concatenate([*filled.values()] or [np.zeros((0, 1))]).astype(np.float32)
            self._stacked = list(filled), ends[:-1], rows
        return self._stacked


class Matrices:
    """The vectors of the tenants that asked last, within MOST_BYTES."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[tuple[str, str], Matrix] = OrderedDict()

    def open(self, tenant: str, model: str) -> Matrix:
        matrix = self._by_key.setdefault((tenant, model), Matrix())
        self._by_key.move_to_end((tenant, model))
        if len(self._by_key) > MOST_TENANTS:
            self._by_key.popitem(last=False)
        return matrix

    def make_room(self) -> None:
        size = sum(matrix.size for matrix in self._by_key.values())
        while size > MOST_BYTES and len(self._by_key) > 1:
            _, forgotten = self._by_key.popitem(last=False)
            size -= forgotten.size
