"""Alembic's environment: one connection as the owner, one process at a time, then the revisions."""

import asyncio
import re

import asyncpg
from alembic import context
from sqlalchemy import Connection, event, pool
from sqlalchemy.ext.asyncio import create_async_engine

from hlas.settings import DEFAULT_ROLE_PREFIX
from hlas.store.db import connect
from hlas.store.logins import Logins
from hlas.store.migrations.roles import PURPOSE

# An arbitrary constant: it only has to be the same for everyone who migrates one database.
MIGRATION_LOCK = 0x484C4153

ROLE = re.compile(rf"\b{DEFAULT_ROLE_PREFIX}_({'|'.join(PURPOSE)})\b")


def run(connection: Connection, logins: Logins) -> None:
    # Revisions write hlas_app; every statement gets this installation's role names here, so that
    # no revision can forget it.
    def name_roles(
        _: object, __: object, statement: str, parameters: object, *___: object
    ) -> tuple[str, object]:
        return ROLE.sub(lambda found: logins.role(found[1]), statement), parameters

    event.listen(connection, "before_cursor_execute", name_roles, retval=True)
    connection.exec_driver_sql(f"select pg_advisory_lock({MIGRATION_LOCK})")
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def migrate(logins: Logins) -> None:
    async def log_in() -> asyncpg.Connection:
        return await connect(logins.owner_url)

    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=log_in, poolclass=pool.NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run, logins)
    await engine.dispose()


asyncio.run(migrate(context.config.attributes["logins"]))
