"""Makes the vectors of entries that have none or stale ones, a few of each tenant at a time."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from hlas import log
from hlas.errors import HlasError
from hlas.knowledge.embedding.embedders import BadText, Embedder, Model, NoVector
from hlas.knowledge.embedding.installation import Meter
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.meaning import list_texts
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

TICK_SECONDS = 2.0
# While no version changes, all entries are checked only this often.
SCAN_SECONDS = 60.0
BATCH_ENTRIES = 8
MOST_TENANTS = 1000
# Longer than a batch takes on a busy machine; claims of a dead worker end after this.
CLAIM = timedelta(minutes=5)
# The pause while somebody else changes the tenant's knowledge.
LOCK_ATTEMPTS = 50
LOCK_PAUSE_SECONDS = 0.2


class VectorMaker:
    """One for each worker; the one with the embedding process does the work."""

    def __init__(
        self, operators: Database, embedder: Embedder, meter: Meter, is_due: Callable[[], bool]
    ) -> None:
        self._operators = operators
        self._embedder = embedder
        self._meter = meter
        self._is_due = is_due
        self._seen_version = -1
        self._next_scan = 0.0

    async def tick(self) -> None:
        """Make all vectors that are missing; the caller tries again after a failure."""
        if not self._is_due():
            return
        try:
            model = await self._embedder.find_model()
        except (OSError, EOFError, NoVector):
            return  # it is being started, or its endpoint is not configured
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
        missing = sum(row["entries"] for row in rows)
        made = 0
        while tenants:
            self._meter.show_vectors(missing=max(0, missing - made))
            # In turns, so that a large import does not keep the others waiting.
            tenant_id = tenants.popleft()
            if some := await self._make_some(tenant_id, model):
                made += some
                tenants.append(tenant_id)
        self._meter.show_vectors(missing=max(0, missing - made))
        return made

    async def _make_some(self, tenant_id: UUID, model: Model) -> int:
        """Returns how many; 0 if none is left or none can be made for now."""
        claimed = await self._operators.all(
            queries.claim_entries, tenant_id, model.name, BATCH_ENTRIES, CLAIM
        )
        try:
            is_made = bool(claimed) and await self._make(tenant_id, claimed, model)
        except NoVector as reason:
            log.warning("vectors_postponed", tenant_id=str(tenant_id), reason=str(reason))
            return 0
        return len(claimed) if is_made else 0

    async def _make(self, tenant_id: UUID, rows: list[Row], model: Model) -> bool:
        """Whether they were saved; if not, they are no longer claimed."""
        is_saved = False
        try:
            vectors = [await self._embed(tenant_id, row, model) for row in rows]
            is_saved = await self._save(tenant_id, rows, vectors, model)
        finally:
            if not is_saved:
                with suppress(HlasError):
                    await self._release(tenant_id, rows)
        return is_saved

    async def _embed(self, tenant_id: UUID, row: Row, model: Model) -> list[bytes]:
        # A long entry takes 0.1 s to translate: visitors do not wait for that.
        texts = await asyncio.to_thread(
            list_texts, Entry.from_row(row), is_english=model.is_english
        )
        try:
            return await self._embedder.embed_texts(model, str(tenant_id), texts)
        except BadText:
            # It is found by its words alone; the other entries are not kept waiting.
            log.warning("vectors_impossible", tenant_id=str(tenant_id), entry_id=str(row["id"]))
            return []

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
