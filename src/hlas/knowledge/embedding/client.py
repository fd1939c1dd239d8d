"""Compares meanings with the help of the embedding process; never fails and never waits long."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from hlas import log
from hlas.errors import HlasError
from hlas.knowledge.embedding.embedders import Embedder, NoVector
from hlas.knowledge.embedding.exchange import exchange
from hlas.knowledge.embedding.installation import Meter
from hlas.knowledge.embedding.protocol import (
    BYTES_PER_NUMBER,
    LARGEST_BODY,
    MOST_DIMENSIONS,
    Compare,
    Keep,
    ProtocolError,
    Put,
    Reply,
)
from hlas.knowledge.ranking import Meaning
from hlas.knowledge.ranking.lexicon import translate
from hlas.knowledge.ranking.library import list_entry_ids
from hlas.store.db import Database, Queries, Row

queries = Queries.beside(__file__)

# The client has a connection of its own, so that it takes none from the search for words.
CONNECTIONS = 1
# Further concurrent questions are ranked without meaning.
MOST_QUESTIONS = 16
# The time limit for sending a page of vectors to the process.
PUSH_SECONDS = 10.0
MOST_PAGE_ENTRIES = 200
# An upper bound for an entry: more float16 vectors than meaning.list_texts makes.
BYTES_PER_DIMENSION = 30 * BYTES_PER_NUMBER
# After so many failures in a row, comparisons are skipped for a while.
MOST_FAILURES = 2
BREAK_SECONDS = 5.0

AWAY = (OSError, EOFError, ProtocolError)
# Outcomes that open the breaker.
FAILURES = frozenset({"timeout", "away", "endpoint"})


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
        self._questions = 0
        # Wait for a connection here: the pool gives up after a second.
        self._turn = asyncio.Semaphore(CONNECTIONS)

    async def compare(self, tenant_id: str, text: str) -> Meaning | None:
        """The entries that are nearest in meaning; None without an answer in time."""
        if self._breaker.is_open() or self._questions >= MOST_QUESTIONS:
            self._meter.semantic("skipped" if self._breaker.is_open() else "busy")
            return None
        self._questions += 1
        try:
            outcome, meaning = await self._try(tenant_id, text)
        finally:
            self._questions -= 1
        if outcome in {"away", "other_model"}:
            self.embedder.forget_model()
        self._breaker.count(is_failure=outcome in FAILURES)
        self._meter.semantic(outcome)
        return meaning

    async def close(self) -> None:
        pushes = list(self._pushes.values())
        for push in pushes:
            push.cancel()
        await asyncio.gather(*pushes, return_exceptions=True)

    async def _try(self, tenant_id: str, text: str) -> tuple[str, Meaning | None]:
        """The outcome, and the meaning if it is ok."""
        try:
            async with asyncio.timeout(self.embedder.seconds):
                return "ok", await self._compare(tenant_id, text)
        except NoVector as reason:
            return str(reason), None
        except TimeoutError:
            return "syncing" if tenant_id in self._pushes else "timeout", None
        except AWAY:
            return "away", None
        except (HlasError, asyncpg.PostgresError):
            return "database", None
        except Exception as error:  # noqa: BLE001  # an answer must not fail because of this
            log.error("semantic_failed", error=type(error).__name__, where=log.find_place(error))
            return "failed", None

    async def _compare(self, tenant_id: str, text: str) -> Mapping[str, float]:
        model = await self.embedder.find_model()
        state = await self._find_state(tenant_id)
        if not state.entries:
            raise NoVector("empty")
        words = translate(text) if model.is_english else text
        vector = await self.embedder.embed_question(model, tenant_id, words)
        request = Compare(tenant_id, model.name, state.cursor, state.entries, words)
        reply, _ = await exchange(self._socket, request, vector)
        if reply.outcome == "behind":
            # Goes on if we run out of time: the next question finds the vectors there.
            await asyncio.shield(self._start_push(tenant_id, model.name, reply))
            reply, _ = await exchange(self._socket, request, vector)
        if reply.outcome != "ok":
            raise NoVector(reply.outcome)
        if not reply.ids:
            raise NoVector("empty")
        return dict(zip(reply.ids, reply.scores, strict=True))

    async def _find_state(self, tenant_id: str) -> _State:
        async with self._turn:
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
        dimensions = known.dimensions or MOST_DIMENSIONS
        most = min(MOST_PAGE_ENTRIES, LARGEST_BODY // (dimensions * BYTES_PER_DIMENSION))
        while True:
            async with self._turn:
                page = await self._database.all(
                    queries.changed_vectors, tenant_id, known.cursor, most, model
                )
            if page:
                known = await self._put(tenant_id, model, known.cursor, page)
            if len(page) < most:
                break
        if known.entries != (await self._find_state(tenant_id)).entries:
            async with self._turn:
                ids = await list_entry_ids(self._database, tenant_id)
            async with asyncio.timeout(PUSH_SECONDS):
                await exchange(self._socket, Keep(tenant_id, model, sorted(ids)))

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
