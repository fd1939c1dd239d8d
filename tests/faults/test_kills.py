"""SIGKILL of the application's workers and of the whole database, under load.

A killed server is restarted automatically: `hlas serve` replaces its workers, the supervisor of the
embedded PostgreSQL restarts it. Visitors send with a key and retry until they get a response, as
the widget does; at the end the database is compared with the acknowledged messages.

The controls plant the two defects that matter and show that the comparison detects them: an
acknowledgement before the commit is on disk, and one before the commit itself.
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
from hlas.store.drafts import Draft, Written
from hlas.store.embedded import Server, postmaster
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session
from processes import UNLIMITED, Served, serve_process, wait_until_ready
from visitors import Visitor, arrive, find_losses, find_settled_losses

PATIENT = {**UNLIMITED, "WIDGET_SESSION_TTL_MINUTES": "1440"}
# The WAL writer runs so rarely that only a commit that waits for the disk is durable.
LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}


@pytest.fixture(scope="module")
def durable_server() -> Iterator[Server]:
    """A PostgreSQL with fsync on, which is restarted whenever it dies."""
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
    """Kill all processes at once, so that nothing that was only in memory survives."""
    for pid in postmaster.members(server.cluster):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had exited already


def kill_workers(served: Served) -> None:
    for worker in served.workers:
        worker.kill()


async def endure(
    server: Server, operators: Database, *, sends: int, kills: int, ready_seconds: float
) -> None:
    """This many sends, with kills of the application and of the database in between."""
    async with (
        serve_process(server.url, workers=2, **PATIENT) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        visitors = await arrive(client, operators, count=20)
        todo = iter(range(sends))
        slowest = 0.0
        due = asyncio.Event()

        def count_acknowledged() -> int:
            return sum(len(visitor.acknowledged) for visitor in visitors)

        async def visit(visitor: Visitor) -> None:
            for number in todo:
                answer = await visitor.send(client, f"m{number}", f"m{number}")
                assert answer.status_code == 200, answer.text
                due.set()

        visiting = [asyncio.create_task(visit(visitor)) for visitor in visitors]
        for turn in range(1, 2 * kills + 1):
            while count_acknowledged() < sends * turn // (2 * kills + 1):
                due.clear()
                await due.wait()
            if turn % 2:
                kill_database(server)
            else:
                kill_workers(served)
            slowest = max(slowest, await wait_until_ready(client, ready_seconds))
        await asyncio.gather(*visiting)
        tries = sum(visitor.tries for visitor in visitors)
        print(f"{sends} sends in {tries} tries, ready again within {slowest:.1f} s")
    assert sum(len(visitor.acknowledged) for visitor in visitors) == sends
    assert await find_settled_losses(operators, visitors) == []


@pytest.mark.timeout(300)
async def test_kills(durable_server: Server, durable_operators: Database) -> None:
    """Edge cases 5 and 6: with application and database killed: none lost, none duplicated."""
    await endure(durable_server, durable_operators, sends=500, kills=2, ready_seconds=120)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_many_kills(durable_server: Server, durable_operators: Database) -> None:
    """Edge cases 5 and 6: 10 000 sends, 20 kills of each; ready again within 10 s."""
    await endure(durable_server, durable_operators, sends=10_000, kills=20, ready_seconds=10)


async def test_killed_during_the_health_check(database_url: str) -> None:
    """Edge case 6: workers that die during the supervisor's health check are replaced at once.

    Fails with uvicorn's own supervisor, which waits for the whole health check timeout.
    """
    async with (
        serve_process(database_url, workers=2, **PATIENT) as served,
        httpx.AsyncClient(base_url=served.url, timeout=20) as client,
    ):
        for worker in served.workers:
            worker.suspend()
        # Longer than the supervisor's interval: it has sent its check and got no answer.
        await asyncio.sleep(2)
        kill_workers(served)
        await wait_until_ready(client, 45)


async def test_stop_under_load(database_url: str, operators: Database) -> None:
    """Edge case 44: SIGTERM under load: the acknowledged messages are the stored ones."""
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
    assert await find_losses(operators, visitors) == []


class HastyWriter(Writer):
    """The planted defect: acknowledges a message when it is queued, before the commit."""

    async def write(self, draft: Draft) -> Written:
        task = asyncio.ensure_future(super().write(draft))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return Written(draft.response, replayed=False)


async def lose(server: Server, operators: Database, store: Writer, count: int) -> list[str]:
    """Send, and kill the database as soon as the last message is acknowledged."""
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
    return await find_settled_losses(operators, [visitor])


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
    """Edge case 5: the comparison detects a planted loss, and no loss with the real writer."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "DRAIN_SECONDS", 0.1)
    store = kind(Logins(durable_server.url), APPLICATION, synchronous_commit=synchronous)
    lost = await lose(durable_server, durable_operators, store, 40)
    assert bool(lost) == expected, lost
