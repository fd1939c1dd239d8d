"""Messages passed to a writer without HTTP, and what is stored."""

import asyncio
from collections.abc import Iterable
from typing import Any

import asyncpg
import uuid_utils

from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.store.db import Database, connect
from hlas.store.drafts import Draft, Written
from hlas.store.writer import Writer
from hlas.tenants import tenants
from hlas.visitors.tokens import Session

SECOND_LOOK = 0.02
LOCK = "select from conversations where id = $1 for update"


async def make_session(operators: Database, tenant_id: str | None = None) -> Session:
    """Create an empty conversation, at this tenant or at a new one."""
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
    """A draft that violates a database constraint; no request can create one."""
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
    """The stored texts; seq must be 1, 2, 3 ... in every case."""
    found = await rows(operators, session)
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    return [content for _, content in found]


async def wait_for_lock(operators: Database) -> None:
    """Wait until a statement waits for a lock in the database."""
    async with asyncio.timeout(30):
        while not await count_waiting(operators):  # noqa: ASYNC110  # there is no event
            await asyncio.sleep(SECOND_LOOK)


async def count_waiting(operators: Database) -> int:
    row = await operators.one(
        # Waiting for a row means waiting for a transaction, which belongs to no database.
        "select count(*) as n from pg_locks l left join pg_database d on d.oid = l.database"
        " where not l.granted and coalesce(d.datname, current_database()) = current_database()"
    )
    assert row is not None
    return int(row["n"])


async def hold_before_commit(database_url: str) -> None:
    """Whoever has inserted a message waits for advisory lock 1 before the commit."""
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
