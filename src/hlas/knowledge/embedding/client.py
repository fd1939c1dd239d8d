"""Compares meanings with the help of the embedding process; never fails and never waits long."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from hlas import log
from hlas.errors import HlasError
from hlas.knowledge.embedding.embedders import Embedder
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.installation import Meter
from hlas.knowledge.embedding.protocol import Compare, Keep, ProtocolError, Put, Reply
from hlas.knowledge.ranking import Meaning
from hlas.knowledge.ranking.lexicon import to_english
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# Of a page of vectors on its way to the process.
PUSH_SECONDS = 10.0
PAGE_ENTRIES = 40
# After so many failures in a row, comparisons are skipped for a while.
MOST_FAILURES = 2
BREAK_SECONDS = 5.0

AWAY = (OSError, EOFError, ProtocolError)


class Breaker:
    """Opens after failures in a row, so that a process that hangs costs nothing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._skip_until = 0.0

    def is_open(self) -> bool:
        return self._failures >= MOST_FAILURES and self._clock() < self._skip_until

    def count(self, *, is_failure: bool) -> None:
        self._failures = self._failures + 1 if is_failure else 0
        self._skip_until = self._clock() + BREAK_SECONDS


class _NoMeaning(Exception):
    """There is nothing to compare with; the text is the outcome to count."""


@dataclass(frozen=True, slots=True)
class _State:
    """What the database says about a tenant's vectors."""

    cursor: int
    entries: int


class EmbeddingClient:
    """One for each worker."""

    def __init__(self, database: Database, socket: Path, embedder: Embedder, meter: Meter) -> None:
        self.embedder = embedder
        self._database = database
        self._socket = socket
        self._meter = meter
        self._breaker = Breaker(asyncio.get_running_loop().time)
        self._pushes: dict[str, asyncio.Task[None]] = {}

    async def compare(self, tenant_id: str, text: str) -> Meaning | None:
        """The entries that are nearest in meaning; None without an answer in time."""
        if self._breaker.is_open():
            self._meter.semantic("skipped")
            return None
        outcome, meaning = "ok", None
        try:
            async with asyncio.timeout(self.embedder.seconds):
                meaning = await self._compare(tenant_id, text)
        except _NoMeaning as reason:
            outcome = str(reason)
        except TimeoutError:
            outcome = "syncing" if tenant_id in self._pushes else "timeout"
        except AWAY:
            outcome = "away"
        except (HlasError, asyncpg.PostgresError):
            outcome = "database"
        except Exception as error:  # noqa: BLE001  # an answer must not fail because of this
            outcome = "failed"
            log.error("semantic_failed", error=type(error).__name__, where=log.find_place(error))
        if outcome in {"away", "other_model"}:
            self.embedder.forget_model()
        self._breaker.count(is_failure=outcome in {"timeout", "away"})
        self._meter.semantic(outcome)
        return meaning

    async def close(self) -> None:
        pushes = list(self._pushes.values())
        for push in pushes:
            push.cancel()
        await asyncio.gather(*pushes, return_exceptions=True)

    async def _compare(self, tenant_id: str, text: str) -> Mapping[str, float]:
        model = await self.embedder.find_model()
        state = await self._find_state(tenant_id)
        if not state.entries:
            raise _NoMeaning("empty")
        words = to_english(text) if model.is_english else text
        vector = await self.embedder.embed_question(words)
        request = Compare(tenant_id, model.name, state.cursor, state.entries, words)
        reply, _ = await exchange(self._socket, request, vector)
        if reply.outcome == "behind":
            # Goes on if we run out of time: the next question finds the vectors there.
            await asyncio.shield(self._start_push(tenant_id, model.name, reply))
            reply, _ = await exchange(self._socket, request, vector)
        if reply.outcome != "ok":
            raise _NoMeaning(reply.outcome)
        if not reply.ids:
            raise _NoMeaning("empty")
        return dict(zip(reply.ids, reply.scores, strict=True))

    async def _find_state(self, tenant_id: str) -> _State:
        row = await self._database.one(queries.vectors_state, tenant_id)
        assert row is not None
        return _State(row["cursor"], row["entries"])

    def _start_push(self, tenant_id: str, model: str, known: Reply) -> "asyncio.Task[None]":
        task = self._pushes.get(tenant_id)
        if task is None:
            task = asyncio.create_task(self._push(tenant_id, model, known), name="vectors push")
            self._pushes[tenant_id] = task
            task.add_done_callback(lambda done: self._end_push(tenant_id, done))
        return task

    def _end_push(self, tenant_id: str, task: "asyncio.Task[None]") -> None:
        del self._pushes[tenant_id]
        # If nobody waited for it, the next question tries again.
        if not task.cancelled():
            task.exception()

    async def _push(self, tenant_id: str, model: str, known: Reply) -> None:
        """Send the process what it does not know yet, in pages."""
        while True:
            page = await self._database.all(
                queries.changed_vectors, tenant_id, known.cursor, PAGE_ENTRIES, model
            )
            if page:
                known = await self._put(tenant_id, model, known.cursor, page)
            if len(page) < PAGE_ENTRIES:
                break
        if known.entries != (await self._find_state(tenant_id)).entries:
            ids = [str(row["id"]) for row in await self._database.all(queries.entry_ids, tenant_id)]
            async with asyncio.timeout(PUSH_SECONDS):
                await exchange(self._socket, Keep(tenant_id, model, ids))

    async def _put(self, tenant_id: str, model: str, since: int, page: list[Row]) -> Reply:
        request = Put(
            tenant_id,
            model,
            since,
            page[-1]["cursor"],
            [str(row["id"]) for row in page],
            [len(row["vectors"]) for row in page],
        )
        body = b"".join(vector for row in page for vector in row["vectors"])
        async with asyncio.timeout(PUSH_SECONDS):
            reply, _ = await exchange(self._socket, request, body)
        return reply
