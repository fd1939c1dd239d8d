"""Kills for real: the application's workers and the whole database, with SIGKILL, under load.

A killed server comes back by itself: `hlas serve` replaces its workers, the supervisor of the
embedded PostgreSQL restarts it. Visitors send with a key until they are answered, as the widget
does; at the end the database is compared with what they were told.

The controls plant the two defects that such a test is for and show that the comparison sees them:
an acknowledgement before the commit is on disk, and one before the commit itself.
"""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import orjson
import pytest
import pytest_asyncio

from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.store import embedded, migrations, writer
from hlas.store.db import Database
from hlas.store.embedded import Server, postmaster
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.store.writer import Draft, Writer, Written
from hlas.visitors.tokens import Session
from processes import UNLIMITED, Served, serve_process, until_ready
from visitors import Visitor, arrive, losses, settled_losses

PATIENT = {**UNLIMITED, "WIDGET_SESSION_TTL_MINUTES": "1440"}
# The WAL writer comes so rarely that only a commit that waits for the disk gets there.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}


@pytest.fixture(scope="module")
def durable_server() -> Iterator[Server]:
    """A PostgreSQL of its own with fsync on, which is started again whenever it dies."""
    directory = Path(tempfile.mkdtemp(prefix="hlas-test-"))
    directory.chmod(0o711)
    server = embedded.start(directory, settings=LAZY)
    server.watch()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest_asyncio.fixture
async def durable_operators(durable_server: Server) -> AsyncIterator[Database]:
    await migrations.upgrade_in_thread(Logins(durable_server.url))
    opened = await Database.open(Logins(durable_server.url), OPERATOR, statement_seconds=60)
    yield opened
    await opened.close()


def kill_database(server: Server) -> None:
    """All of it at once, so that nothing that was only in memory survives."""
    for pid in postmaster.members(server.cluster):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was about to end anyway


def kill_workers(served: Served) -> None:
    for worker in served.workers:
        worker.kill()


async def endure(
    server: Server, operators: Database, *, sends: int, kills: int, ready_seconds: float
) -> None:
    """So many sends, with so many kills of the application and of the database on the way."""
    async with (
        serve_process(server.url, workers=2, **PATIENT) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        visitors = await arrive(client, operators, count=20)
        todo = iter(range(sends))
        slowest = 0.0
        due = asyncio.Event()

        def acknowledged() -> int:
            return sum(len(visitor.acknowledged) for visitor in visitors)

        async def visit(visitor: Visitor) -> None:
            for number in todo:
                answer = await visitor.send(client, f"m{number}", f"m{number}")
                assert answer.status_code == 200, answer.text
                due.set()

        visiting = [asyncio.create_task(visit(visitor)) for visitor in visitors]
        for turn in range(1, 2 * kills + 1):
            while acknowledged() < sends * turn // (2 * kills + 1):
                due.clear()
                await due.wait()
            if turn % 2:
                kill_database(server)
            else:
                kill_workers(served)
            slowest = max(slowest, await until_ready(client, ready_seconds))
        await asyncio.gather(*visiting)
        tries = sum(visitor.tries for visitor in visitors)
        print(f"{sends} sends in {tries} tries, ready again within {slowest:.1f} s")
    assert sum(len(visitor.acknowledged) for visitor in visitors) == sends
    assert await settled_losses(operators, visitors) == []


@pytest.mark.timeout(300)
async def test_kills(durable_server: Server, durable_operators: Database) -> None:
    """Edge cases 5 and 6: application and database killed under load: none lost, none doubled."""
    await endure(durable_server, durable_operators, sends=500, kills=2, ready_seconds=120)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_many_kills(durable_server: Server, durable_operators: Database) -> None:
    """Edge cases 5 and 6: 10 000 sends, 20 kills of each; ready again within 10 s by itself."""
    await endure(durable_server, durable_operators, sends=10_000, kills=20, ready_seconds=10)


async def test_killed_while_it_was_asked(database_url: str) -> None:
    """Edge case 6: workers that die owing the supervisor an answer are replaced, not waited for.

    Seen failing with uvicorn's own supervisor, which waits for the whole health check timeout.
    """
    async with (
        serve_process(database_url, workers=2, **PATIENT) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        for worker in served.workers:
            worker.suspend()
        # Longer than the supervisor's round: it has asked, and nobody has answered.
        await asyncio.sleep(2)
        kill_workers(served)
        await until_ready(client, 45)


async def test_stop_under_load(database_url: str, operators: Database) -> None:
    """Edge case 44: SIGTERM under load: what was stored was acknowledged, and the other way."""
    async with (
        serve_process(database_url, workers=1, **PATIENT) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        visitors = await arrive(client, operators, count=16)
        enough = asyncio.Event()

        async def visit(visitor: Visitor) -> None:
            while True:
                key = f"m{len(visitor.acknowledged)}"
                try:
                    answer = await visitor.post(client, key, key)
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    visitor.acknowledged[key] = answer.json()["message_id"]
                if sum(len(other.acknowledged) for other in visitors) > 200:
                    enough.set()

        visiting = [asyncio.create_task(visit(visitor)) for visitor in visitors]
        await enough.wait()
        assert await served.stop() == 0
        await asyncio.gather(*visiting)
    assert await losses(operators, visitors) == []


class HastyWriter(Writer):
    """The defect: acknowledges when the message is queued, before anything is committed."""

    async def write(self, draft: Draft) -> Written:
        task = asyncio.ensure_future(super().write(draft))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Written(draft.response, replayed=False)


async def lose(server: Server, operators: Database, store: Writer, count: int) -> list[str]:
    """Sends, and the database killed as soon as the last one is acknowledged."""
    visitor = Visitor("https://a.example", "", "")
    tenant = await operators.one(
        "insert into tenants (id, slug, name) select id, 't' || right(id::text, 12), 't'"
        " from gen_random_uuid() as id returning id::text as id"
    )
    assert tenant is not None
    opened = await operators.one(
        "insert into conversations (tenant_id, id, origin)"
        " values ($1, gen_random_uuid(), 'https://a.example') returning id::text as id",
        tenant["id"],
    )
    assert opened is not None
    visitor.conversation_id = opened["id"]
    session = Session(tenant["id"], opened["id"], visitor.origin, 1, 0)
    for number in range(count):
        key = f"m{number}"
        written = await messages.create(store, session, NewMessage(text=key), key)
        visitor.acknowledged[key] = orjson.loads(written.response)["message_id"]
    kill_database(server)
    await store.close()
    return await settled_losses(operators, [visitor])


@pytest.mark.parametrize(
    ("kind", "synchronous", "expected"),
    [(Writer, "on", False), (Writer, "off", True), (HastyWriter, "on", True)],
    ids=["ours", "synchronous_commit off", "acknowledged before the commit"],
)
async def test_control(
    durable_server: Server,
    durable_operators: Database,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Writer],
    synchronous: str,
    *,
    expected: bool,
) -> None:
    """Edge case 5: the comparison sees a planted loss, and sees none in the writer as it is."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "DRAIN_SECONDS", 0.1)
    store = kind(Logins(durable_server.url), APPLICATION, synchronous_commit=synchronous)
    lost = await lose(durable_server, durable_operators, store, 40)
    assert bool(lost) == expected, lost
