"""Messages handed to a writer without HTTP, and what became of them."""

import asyncio
from collections.abc import Iterable
from typing import Any

import asyncpg
import uuid_utils

from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.store.db import Database, connect
from hlas.store.writer import Draft, Writer, Written
from hlas.tenants import tenants
from hlas.visitors.tokens import Session

SECOND_LOOK = 0.02
LOCK = "select from conversations where id = $1 for update"


async def make_session(operators: Database, tenant_id: str | None = None) -> Session:
    """A conversation that nobody has written to, at a tenant of its own or at this one."""
    if tenant_id is None:
        slug = f"t{uuid_utils.uuid7().hex[-12:]}"
        made = await tenants.add(operators, slug, slug, [f"https://{slug}.example"])
        tenant_id = str(made.id)
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
