"""Makes the vectors of entries that have none or stale ones, a few of each tenant at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from hlas import log
from hlas.errors import HlasError
from hlas.knowledge.embedding.embedders import Embedder, Model
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.meaning import texts_of
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

TICK_SECONDS = 2.0
# Without a change of the sequence everything is looked through only this often.
SCAN_SECONDS = 60.0
BATCH_ENTRIES = 8
MOST_TENANTS = 1000
# Longer than a batch takes on a busy machine; a worker that dies leaves its claims for so long.
CLAIM = timedelta(minutes=5)
# While somebody else changes the tenant's knowledge.
LOCK_ATTEMPTS = 50
LOCK_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """How many entries of a tenant have vectors, of all."""

    done: int
    total: int


async def measure_progress(database: Database, tenant_id: UUID) -> Progress:
    row = await database.one(queries.vectors_progress, tenant_id)
    assert row is not None
    return Progress(row["done"], row["total"])


class VectorMaker:
    """One for each worker; that which has the embedding process does the work."""

    def __init__(self, operators: Database, embedder: Embedder, is_due: Callable[[], bool]) -> None:
        self._operators = operators
        self._embedder = embedder
        self._is_due = is_due
        self._seen_version = -1
        self._next_scan = 0.0

    async def tick(self) -> None:
        """Make all vectors that are missing; the caller tries again after a failure."""
        if not self._is_due():
            return
        try:
            model = await self._embedder.find_model()
        except (OSError, EOFError):
            return  # it is being started
        row = await self._operators.one(queries.last_version)
        version = (row and row["version"]) or 0
        now = asyncio.get_running_loop().time()
        if version == self._seen_version and now < self._next_scan:
            return
        try:
            made = await self._make_all(model)
        except BaseException:
            # The process may be another one the next time.
            self._embedder.forget_model()
            raise
        self._seen_version, self._next_scan = version, now + SCAN_SECONDS
        if made:
            log.info("vectors_made", entries=made)

    async def _make_all(self, model: Model) -> int:
        rows = await self._operators.all(queries.tenants_without_vectors, model.name, MOST_TENANTS)
        tenants = deque(row["tenant_id"] for row in rows)
        made = 0
        while tenants:
            # In turns, so that a large import does not keep the others waiting.
            tenant_id = tenants.popleft()
            claimed = await self._operators.all(
                queries.claim_entries, tenant_id, model.name, BATCH_ENTRIES, CLAIM
            )
            if claimed and await self._make(tenant_id, claimed, model):
                made += len(claimed)
                tenants.append(tenant_id)
        return made

    async def _make(self, tenant_id: UUID, rows: list[Row], model: Model) -> bool:
        """Whether they were saved; if not, they are no longer claimed."""
        is_saved = False
        try:
            vectors = [await self._embed(row, model) for row in rows]
            is_saved = await self._save(tenant_id, rows, vectors, model)
        finally:
            if not is_saved:
                with suppress(HlasError):
                    await self._release(tenant_id, rows)
        return is_saved

    async def _embed(self, row: Row, model: Model) -> list[bytes]:
        texts = texts_of(_make_entry(row), is_english=model.is_english)
        return await self._embedder.embed_texts(texts)

    async def _save(
        self, tenant_id: UUID, rows: list[Row], vectors: list[list[bytes]], model: Model
    ) -> bool:
        for _ in range(LOCK_ATTEMPTS):
            async with self._operators.transaction() as connection:
                if await connection.fetchval(queries.lock_knowledge, str(tenant_id)):
                    await connection.executemany(
                        queries.save_vectors,
                        [
                            (tenant_id, row["id"], model.name, row["version"], made)
                            for row, made in zip(rows, vectors, strict=True)
                        ],
                    )
                    return True
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        return False

    async def _release(self, tenant_id: UUID, rows: list[Row]) -> None:
        ids = [row["id"] for row in rows]
        await self._operators.execute(queries.release_entries, tenant_id, ids)


def _make_entry(row: Row) -> Entry:
    return Entry(
        row["question"],
        row["answer"],
        tuple(row["keywords"]),
        row["language"],
        row["kind"],
        tuple(row["wordings"]),
        row["url"],
    )
