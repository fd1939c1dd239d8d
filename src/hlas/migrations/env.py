"""Alembic's environment: one connection as the owner, roles first, then the revisions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

from hlas.db import connect
from hlas.migrations import roles

# Any constant will do: it only has to be the same for everyone who migrates one database.
MIGRATION_LOCK = 0x484C4153


def run(connection: Connection) -> None:
    connection.exec_driver_sql(f"select pg_advisory_lock({MIGRATION_LOCK})")
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def migrate(database_url: str) -> None:
    first = await connect(database_url)
    try:
        await roles.ensure(first)
    finally:
        await first.close()
    creator: Callable[[], Awaitable[Any]] = lambda: connect(database_url)  # noqa: E731  # a name for its type
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=creator, poolclass=pool.NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run)
    await engine.dispose()


asyncio.run(migrate(context.config.attributes["database_url"]))
