"""Searches of agents in the database, shared fairly among tenants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from hlas.knowledge.language import Language
from hlas.knowledge.ranking import Match, Semantic
from hlas.knowledge.ranking.library import Library
from hlas.store.db import Database

# Agents have a few connections of their own, so that slow knowledge does not block the routes that
# read and write. The database cancels statements that take longer.
CONNECTIONS = 2
STATEMENT_SECONDS = 0.5


class Ranker:
    """One for each pool: a tenant has one search at a time, so a slow tenant delays only itself."""

    def __init__(self, database: Database, semantic: Semantic | None = None) -> None:
        self._database = database
        self._semantic = semantic
        self._library = Library()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Wait for a connection here: the pool gives up after a second.
        self._connections = asyncio.Semaphore(CONNECTIONS)

    async def rank(self, tenant_id: str, text: str, language: Language) -> list[Match]:
        """The tenant's entries that match the text best, best first."""
        async with self.take_turn(tenant_id) as database:
            index = await self._library.open(database, tenant_id)
        meaning = await self._semantic.compare(tenant_id, text) if self._semantic else None
        return index.search(text, language, meaning)

    @asynccontextmanager
    async def take_turn(self, tenant_id: str) -> AsyncIterator[Database]:
        """Wait for the tenant's turn and for a connection; the caller limits how long."""
        turn = self._turns.setdefault(tenant_id, asyncio.Lock())
        await turn.acquire()
        loop = asyncio.get_running_loop()
        took = 0.0
        try:
            async with self._connections:
                started = loop.time()
                try:
                    yield self._database
                finally:
                    took = loop.time() - started
        finally:
            # The next search waits as long as this one took, so that a tenant keeps the database
            # busy for at most half of the time.
            loop.call_later(took, turn.release)
