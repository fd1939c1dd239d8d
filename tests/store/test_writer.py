"""Group commit against a real PostgreSQL: batches, refusals, drain.

Fails with these defects planted: no `_write_one_by_one` (a bad row fails its neighbours),
grouping without the generation, `close` without a drain, waiting always (a single message is
delayed), never, or with enough rows in the queue.
"""

import asyncio

import asyncpg
import pytest

from cables import Cable
from drafts import SECOND_LOOK, bad_draft, contents, make_session, send, split
from hlas import errors
from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.store import writer
from hlas.store.db import Database
from hlas.store.drafts import Refusal, Written
from hlas.store.logins import APPLICATION, Logins
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session


async def test_batches(store: Writer, session: Session, operators: Database) -> None:
    """Messages that arrive while a statement is running share the next one, in order."""
    sizes: list[int] = []
    store._on_batch = lambda size, _: sizes.append(size)
    await send(store, session, "first")
    await asyncio.gather(*(send(store, session, str(number)) for number in range(40)))
    assert await contents(operators, session) == ["first", *map(str, range(40))]
    assert sizes == [1, 40]


async def test_single_message(
    store: Writer, session: Session, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single message does not wait for others, nor do two when no third is expected."""
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "GATHER_SECONDS", 3600.0)
    monkeypatch.setattr(writer, "BUSY_RATE", 0.0)
    async with asyncio.timeout(60):
        for number in range(20):
            await send(store, session, str(number))
        monkeypatch.setattr(writer, "BUSY_RATE", 1e9)
        for _ in range(20):
            await asyncio.gather(send(store, session, "a"), send(store, session, "b"))
    assert len(await contents(operators, session)) == 61


async def test_batches_under_load(
    store: Writer, session: Session, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load messages wait briefly to share a statement, even if none is running."""
    batches: list[int] = []
    store._on_batch = lambda size, _: batches.append(size)
    monkeypatch.setattr(writer, "QUIET_SECONDS", 3600.0)
    await asyncio.gather(*(send(store, session, str(number)) for number in range(40)))
    monkeypatch.setattr(writer, "GATHER_SECONDS", 1.0)
    monkeypatch.setattr(writer, "BUSY_RATE", 0.0)
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
        # After a pause the next message is written alone again.
        monkeypatch.setattr(writer, "QUIET_SECONDS", 0.05)
        await asyncio.sleep(0.1)
        await send(store, session, "alone")
    assert len(await contents(operators, session)) == 43 + writer.ENOUGH_ROWS


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


async def test_cancelled_caller(store: Writer, session: Session, operators: Database) -> None:
    """A cancelled request neither affects its batch nor stores its message."""
    kept = [asyncio.create_task(send(store, session, "kept")) for _ in range(2)]
    gone = asyncio.create_task(send(store, session, "gone"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(*kept)
    assert await contents(operators, session) == ["kept", "kept"]


async def test_queue_full(
    store: Writer, session: Session, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is bounded: a message that does not fit is refused at once, others are written."""
    await send(store, session, "warm")
    monkeypatch.setattr(writer, "QUEUE_ROWS", 10)
    outcomes = await asyncio.gather(
        *(send(store, session, str(n)) for n in range(15)), return_exceptions=True
    )
    written, failed = split(outcomes)
    assert len(written) == 10
    assert [type(error) for error in failed] == [errors.Unavailable] * 5


async def test_close_drains(store: Writer, session: Session, operators: Database) -> None:
    """Edge case 44: accepted messages are written before the writer stops, and none after."""
    sending = [asyncio.create_task(send(store, session, str(n))) for n in range(600)]
    await asyncio.sleep(0)
    await store.close()
    assert all(task.done() for task in sending)
    with pytest.raises(errors.Unavailable):
        await send(store, session, "late")
    assert await contents(operators, session) == [str(n) for n in range(600)]


@pytest.mark.usefixtures("patient")
async def test_close_answers_everybody(
    session: Session, cable: Cable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the database hangs during shutdown, the stop is bounded and every caller is answered."""
    store = Writer(Logins(cable.url), APPLICATION)
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
    """A token of an older generation does not get the response of a valid one."""
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
    """Edge case 9: refused messages are not stored; the others of the batch are."""
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


async def test_plain_outcomes(store: Writer, session: Session, operators: Database) -> None:
    """The writer returns outcomes instead of HTTP errors, and each refusal has its error."""
    first = messages.make_draft(session, NewMessage(text="a"), "k")
    other = messages.make_draft(session, NewMessage(text="b"), "k")
    assert await store.write(first) == Written(first.response, replayed=False)
    assert await store.write(other) is Refusal.KEY_CONFLICT
    await operators.execute(
        "update conversations set status = 'closed' where id = $1", session.conversation_id
    )
    late = messages.make_draft(session, NewMessage(text="late"), None)
    assert await store.write(late) is Refusal.CONVERSATION_CLOSED
    assert set(messages.REFUSALS) == set(Refusal)


async def test_durable_connection(store: Writer, session: Session, operators: Database) -> None:
    """Edge case 5: acknowledged messages are on disk, whatever the server's default."""
    await operators.execute("set synchronous_commit = off")
    await send(store, session, "warm")
    assert store._connection is not None
    shown = [
        await store._connection.fetchval(f"show {name}")
        for name in ("synchronous_commit", "transaction_isolation", "session_authorization")
    ]
    assert shown == ["on", "read committed", "hlas_app"]
