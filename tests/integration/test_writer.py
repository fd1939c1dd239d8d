"""Group commit against a real PostgreSQL, with the connection cut at every moment.

Seen failing with these defects planted: `_retryable` keeping everything (500 for a message without
a key), `_retryable` keeping nothing (503 instead of the stored answer), no `_one_by_one` (a bad row
fails its neighbours), `held` left null and `skip locked` removed (waits in the database), requeued
always in front (a full batch of locked ones holds up the rest), no patrol (a silent database is
waited for), every stored answer a replay, grouping without the generation, `close` without a drain,
gathering always (a lone message waits), never, or with enough rows at hand.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
import uuid_utils

from cables import Cable, plugged
from factories import run_out_of_patience
from hlas import errors, messages, tenants, writer
from hlas.db import Database, connect
from hlas.messages import NewMessage
from hlas.migrations.roles import APPLICATION, OPERATOR
from hlas.tokens import Session
from hlas.writer import Draft, Writer, Written

SECOND_LOOK = 0.02
LOCK = "select from conversations where id = $1 for update"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no fault: where time is not the point there is plenty of it."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 60.0)


@pytest_asyncio.fixture
async def cable(database_url: str) -> AsyncIterator[Cable]:
    async with plugged(database_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def store(cable: Cable) -> AsyncIterator[Writer]:
    opened = Writer(cable.url, APPLICATION)
    yield opened
    cable.silent = cable.unplugged = False
    await opened.close()


@pytest_asyncio.fixture
async def locker(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another process on the same database, in a transaction."""
    connection = await connect(database_url, OPERATOR)
    await connection.execute("begin")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def session(operators: Database) -> Session:
    return await make_session(operators)


async def make_session(operators: Database, tenant_id: str | None = None) -> Session:
    """A conversation that nobody has written to, at a tenant of its own or at this one."""
    if tenant_id is None:
        slug = f"t{uuid_utils.uuid7().hex[-12:]}"
        made = await tenants.add(operators, slug, slug, [f"https://{slug}.example"])
        tenant_id = made["id"]
    conversation_id = str(uuid_utils.uuid7())
    await operators.execute(
        "insert into conversations (tenant_id, id, origin) values ($1, $2, 'https://a.example')",
        tenant_id,
        conversation_id,
    )
    return Session(tenant_id, conversation_id, "https://a.example", 1, 0)


async def send(store: Writer, session: Session, text: str, key: str | None = None) -> Written:
    return await messages.create(store, session, NewMessage(text=text), key)


def bad_draft(session: Session) -> Draft:
    """What the check of the database refuses: no request can make it, a defect could."""
    message_id = str(uuid_utils.uuid7())
    return Draft(
        session.tenant_id, session.conversation_id, 1, message_id, "nobody", "x", "{}", "{}"
    )


async def rows(operators: Database, session: Session) -> list[tuple[int, str]]:
    found: list[Any] = await operators.all(
        "select seq, content from messages where tenant_id = $1 and conversation_id = $2"
        " order by seq",
        session.tenant_id,
        session.conversation_id,
    )
    return [(row["seq"], row["content"]) for row in found]


async def contents(operators: Database, session: Session) -> list[str]:
    """What is stored; seq must be 1, 2, 3 ... whatever happened."""
    found = await rows(operators, session)
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    return [content for _, content in found]


async def until_waiting(operators: Database) -> None:
    """Until a statement is held up by a lock in the database."""
    async with asyncio.timeout(30):
        while not await waiting(operators):  # noqa: ASYNC110  # the database tells nobody
            await asyncio.sleep(SECOND_LOOK)


async def waiting(operators: Database) -> int:
    row = await operators.one(
        # Who waits for a row waits for a transaction, which belongs to no database.
        "select count(*) as n from pg_locks l left join pg_database d on d.oid = l.database"
        " where not l.granted and coalesce(d.datname, current_database()) = current_database()"
    )
    assert row is not None
    return int(row["n"])


async def hold_before_commit(database_url: str) -> None:
    """Whoever has inserted a message waits for the lock 1 before the transaction ends."""
    owner = await connect(database_url)
    await owner.execute(
        "create function hold() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(1); return null; end';"
        "create trigger hold after insert on messages for each statement execute function hold()"
    )
    await owner.close()


async def kill_writers(operators: Database, superuser_url: str) -> None:
    row = await operators.one("select current_database() as name")
    assert row is not None
    connection = await asyncpg.connect(superuser_url)
    try:
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'hlas writer' and datname = $1",
            row["name"],
        )
    finally:
        await connection.close()


def split(outcomes: Iterable[Any]) -> tuple[list[Written], list[BaseException]]:
    written: list[Written] = []
    failed: list[BaseException] = []
    for outcome in outcomes:
        (failed if isinstance(outcome, BaseException) else written).append(outcome)
    return written, failed


async def test_batches(store: Writer, session: Session, operators: Database) -> None:
    """What arrives while a statement is under way shares the next one, in order."""
    sizes: list[int] = []
    store._on_batch = lambda size, _: sizes.append(size)
    await send(store, session, "first")
    await asyncio.gather(*(send(store, session, str(number)) for number in range(40)))
    assert await contents(operators, session) == ["first", *map(str, range(40))]
    assert sizes == [1, 40]


async def test_alone(
    store: Writer, session: Session, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes alone does not wait for company."""
    monkeypatch.setattr(writer, "GATHER_SECONDS", 3600.0)
    async with asyncio.timeout(60):
        for number in range(20):
            await send(store, session, str(number))
    assert len(await contents(operators, session)) == 20


async def test_company(
    cable: Cable, session: Session, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where messages come together, the next ones share a statement though none is under way."""
    batches: list[int] = []
    store = Writer(cable.url, APPLICATION, on_batch=lambda rows, _: batches.append(rows))
    await asyncio.gather(*(send(store, session, str(number)) for number in range(40)))
    monkeypatch.setattr(writer, "GATHER_SECONDS", 1.0)
    batches.clear()
    first = asyncio.create_task(send(store, session, "first"))
    for _ in range(10):
        await asyncio.sleep(0)
    await asyncio.gather(first, send(store, session, "second"))
    assert batches == [2]
    enough = (send(store, session, str(number)) for number in range(writer.ENOUGH_ROWS))
    monkeypatch.setattr(writer, "GATHER_SECONDS", 3600.0)
    async with asyncio.timeout(60):
        await asyncio.gather(*enough)
    await store.close()
    assert len(await contents(operators, session)) == 42 + writer.ENOUGH_ROWS


async def test_bad_row_fails_alone(store: Writer, session: Session, operators: Database) -> None:
    """Edge case 20: a bad row in a batch fails alone; its conversation's seq has no gap."""
    outcomes = await asyncio.gather(
        send(store, session, "a", "a"),
        store.write(bad_draft(session)),
        send(store, session, "b"),
        send(store, session, "a", "a"),
        return_exceptions=True,
    )
    written, failed = split(outcomes)
    assert [type(error) for error in failed] == [asyncpg.CheckViolationError]
    assert [answer.replayed for answer in written] == [False, False, True]
    assert await contents(operators, session) == ["a", "b"]


async def test_answer_lost_after_commit(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """Edge case 7: the commit happened but its answer was lost; the keyed message is there once."""
    await send(store, session, "warm", "warm")
    cable.lose_next_answer = True
    outcomes = await asyncio.gather(
        send(store, session, "keyed", "k"),
        send(store, session, "plain"),
        send(store, session, "keyed", "k"),
        return_exceptions=True,
    )
    assert cable.lost == 1
    written, failed = split(outcomes)
    # Without a key another try might double it, so the visitor has to decide.
    assert [type(error) for error in failed] == [errors.Unavailable]
    assert [answer.replayed for answer in written] == [False, True]
    assert len({answer.response for answer in written}) == 1
    assert await contents(operators, session) == ["warm", "keyed", "plain"]


async def test_question_lost(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """Edge case 7: nothing got to the database; the keyed message is written by the next try."""
    await send(store, session, "warm")
    cable.lose_next_question = True
    written = await send(store, session, "keyed", "k")
    assert (cable.lost, written.replayed) == (1, False)
    assert await contents(operators, session) == ["warm", "keyed"]


async def test_killed_between_claim_and_commit(
    store: Writer,
    session: Session,
    operators: Database,
    locker: asyncpg.Connection,
    database_url: str,
    postgres_server: Any,
) -> None:
    """Edge cases 4 and 7: the session dies after the claim; nothing is left, one try creates it."""
    await send(store, session, "warm")
    await hold_before_commit(database_url)
    await locker.execute("select pg_advisory_xact_lock(1)")
    sending = [asyncio.create_task(send(store, session, "hi", "k")) for _ in range(8)]
    await until_waiting(operators)
    await kill_writers(operators, postgres_server.superuser_url)
    row = await operators.one("select count(*) as n from idempotency_keys")
    assert row is not None
    assert row["n"] == 0
    await locker.execute("rollback")
    written = await asyncio.gather(*sending)
    assert [answer.replayed for answer in written].count(False) == 1
    assert await contents(operators, session) == ["warm", "hi"]


async def test_every_moment(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """Edge case 4: whenever the connection goes, each key has one row and each caller an answer."""
    await send(store, session, "warm")
    for number in range(30):
        sending = [
            asyncio.create_task(send(store, session, f"{number}", f"{number}")) for _ in range(4)
        ]
        # From before the statement leaves to after its answer: this many turns of the loop.
        for _ in range(number):
            await asyncio.sleep(0)
        cable.cut()
        written = await asyncio.gather(*sending)
        assert [answer.replayed for answer in written].count(False) == 1
    assert await contents(operators, session) == ["warm", *map(str, range(30))]


async def test_locked_conversation(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """A conversation that another process writes to is tried again; the others do not wait."""
    other = await make_session(operators, session.tenant_id)
    await locker.execute(LOCK, session.conversation_id)
    stuck = [asyncio.create_task(send(store, session, str(n), f"{n}")) for n in range(3)]
    async with asyncio.timeout(30):
        # The connection is kept, and nothing waits in the database: that would hold up the others.
        for number in range(20):
            await send(store, other, str(number))
    assert not any(task.done() for task in stuck)
    await locker.execute("rollback")
    await asyncio.gather(*stuck)
    assert await contents(operators, session) == ["0", "1", "2"]
    assert await contents(operators, other) == [str(number) for number in range(20)]


async def test_nothing_blocks_on_a_locked_conversation(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """A batch of locked conversations alone comes back at once, too; it never waits inside."""
    await send(store, session, "warm")
    await locker.execute(LOCK, session.conversation_id)
    sending = asyncio.create_task(send(store, session, "later", "k"))
    for _ in range(20):
        await asyncio.sleep(SECOND_LOOK)
        assert await waiting(operators) == 0
    await locker.execute("rollback")
    await sending


async def test_full_batch_of_locked_ones(
    store: Writer, session: Session, operators: Database, locker: asyncpg.Connection
) -> None:
    """More than a batch waits for one busy conversation: the others still get through."""
    other = await make_session(operators, session.tenant_id)
    await locker.execute(LOCK, session.conversation_id)
    count = 2 * writer.BATCH_ROWS
    stuck = [asyncio.create_task(send(store, session, "x")) for _ in range(count)]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await send(store, other, "through")
    assert not any(task.done() for task in stuck)
    await locker.execute("rollback")
    await asyncio.gather(*stuck)
    assert len(await contents(operators, session)) == count


async def test_lock_timeout(store: Writer, session: Session, locker: asyncpg.Connection) -> None:
    """Edge case 18: past the lock timeout keyed requests get 409, those without a key 503."""
    await locker.execute(LOCK, session.conversation_id)
    sending = asyncio.gather(
        send(store, session, "hi", "k"),
        send(store, session, "hi", "k"),
        send(store, session, "hi"),
        return_exceptions=True,
    )
    await run_out_of_patience(store, 3)
    kinds = [type(outcome) for outcome in await sending]
    assert kinds == [errors.IdempotencyInProgress, errors.IdempotencyInProgress, errors.Unavailable]
    # Those who were answered during a statement leave with its end.
    async with asyncio.timeout(20):
        while store.depth:  # noqa: ASYNC110  # the writer has no event for it
            await asyncio.sleep(0.01)


async def test_silent_database(
    store: Writer,
    session: Session,
    cable: Cable,
    operators: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A database that says nothing: everybody is answered in time, also in the statement."""
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 0.3)
    cable.silent = True
    first = asyncio.create_task(send(store, session, "a", "a"))
    await asyncio.sleep(SECOND_LOOK)
    second = asyncio.create_task(send(store, session, "b", "b"))
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.Unavailable] * 2
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    cable.silent = False
    cable.cut()
    assert not (await send(store, session, "a", "a")).replayed
    assert await contents(operators, session) == ["warm", "a"]


async def test_database_away(
    store: Writer, session: Session, cable: Cable, operators: Database
) -> None:
    """While the database is away messages wait, keyed or not; when it is back they are written."""
    await send(store, session, "warm")
    cable.unplugged = True
    cable.cut()
    assert store._connection is not None
    async with asyncio.timeout(30):
        while not store._connection.is_closed():  # noqa: ASYNC110  # asyncpg tells nobody
            await asyncio.sleep(SECOND_LOOK)
    sending = [asyncio.create_task(send(store, session, str(n))) for n in range(5)]
    await asyncio.sleep(5 * SECOND_LOOK)
    assert not any(task.done() for task in sending)
    cable.unplugged = False
    await asyncio.gather(*sending)
    assert await contents(operators, session) == ["warm", *map(str, range(5))]


async def test_cancelled_caller(store: Writer, session: Session, operators: Database) -> None:
    """A request that is given up neither disturbs its batch nor leaves a message unasked for."""
    kept = [asyncio.create_task(send(store, session, "kept")) for _ in range(2)]
    gone = asyncio.create_task(send(store, session, "gone"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*kept)
    assert await contents(operators, session) == ["kept", "kept"]


async def test_queue_full(
    store: Writer, session: Session, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded: who does not fit hears so at once, and the others are written."""
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "QUEUE_ROWS", 10)
    outcomes = await asyncio.gather(
        *(send(store, session, str(n)) for n in range(15)), return_exceptions=True
    )
    written, failed = split(outcomes)
    assert len(written) == 10
    assert [type(error) for error in failed] == [errors.Unavailable] * 5


async def test_close_drains(store: Writer, session: Session, operators: Database) -> None:
    """Edge case 44: what was accepted is written before the writer ends, and nothing after."""
    sending = [asyncio.create_task(send(store, session, str(n))) for n in range(600)]
    await asyncio.sleep(0)
    await store.close()
    assert all(task.done() for task in sending)
    with pytest.raises(errors.Unavailable):
        await send(store, session, "late")
    assert await contents(operators, session) == [str(n) for n in range(600)]


async def test_close_answers_everybody(
    session: Session, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that hangs at the end: the stop is bounded and everybody gets an answer."""
    store = Writer(cable.url, APPLICATION)
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "DRAIN_SECONDS", 0.3)
    monkeypatch.setattr(writer, "BATCH_ROWS", 2)
    cable.silent = True
    sending = [asyncio.create_task(send(store, session, str(n), f"{n}")) for n in range(6)]
    await asyncio.sleep(SECOND_LOOK)
    await store.close()
    outcomes = await asyncio.gather(*sending, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.Unavailable] * 6


async def test_signed_out_follower(store: Writer, session: Session) -> None:
    """A token of an older generation gets no share in the answer of one that stands."""
    old = Session(session.tenant_id, session.conversation_id, session.origin, 0, 0)
    await send(store, session, "warm")
    outcomes = await asyncio.gather(
        send(store, old, "hi", "k"),
        send(store, session, "hi", "k"),
        send(store, old, "hi", "k"),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [
        errors.SessionRevoked,
        Written,
        errors.SessionRevoked,
    ]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("update conversations set status = 'closed'", errors.ConversationClosed),
        ("update tenants set is_active = false", errors.TenantInactive),
        ("update tenants set token_generation = 2", errors.SessionRevoked),
        ("delete from tenants", errors.ConversationNotFound),
    ],
)
async def test_refusals(
    store: Writer,
    session: Session,
    operators: Database,
    change: str,
    refusal: type[errors.HlasError],
) -> None:
    """Edge case 9: who may not write stores nothing; the others of the batch are written."""
    other = await make_session(operators)
    column = "tenant_id" if "conversations" in change else "id"
    await operators.execute(f"{change} where {column} = $1", session.tenant_id)
    outcomes = await asyncio.gather(
        send(store, session, "no", "k"),
        send(store, other, "yes", "k"),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [refusal, Written]
    assert await contents(operators, other) == ["yes"]
    assert await contents(operators, session) == []


async def test_durable_connection(store: Writer, session: Session, operators: Database) -> None:
    """Edge case 5: whatever the server's default, what is acknowledged is on disk."""
    await operators.execute("set synchronous_commit = off")
    await send(store, session, "warm")
    assert store._connection is not None
    shown = [
        await store._connection.fetchval(f"show {name}")
        for name in ("synchronous_commit", "transaction_isolation", "role")
    ]
    assert shown == ["on", "read committed", APPLICATION]
