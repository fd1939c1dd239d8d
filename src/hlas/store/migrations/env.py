"""Alembic's environment: one connection as the owner, one process at a time, then the revisions."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from alembic import context
from sqlalchemy import Connection, event, pool
from sqlalchemy.ext.asyncio import create_async_engine

from hlas.settings import DEFAULT_ROLE_PREFIX
from hlas.store.db import connect
from hlas.store.logins import Logins
from hlas.store.migrations.roles import PURPOSE

# Any constant will do: it only has to be the same for everyone who migrates one database.
MIGRATION_LOCK = 0x484C4153

ROLE = re.compile(rf"\b{DEFAULT_ROLE_PREFIX}_({'|'.join(PURPOSE)})\b")


def run(connection: Connection, logins: Logins) -> None:
    # Revisions write hlas_app; here every statement gets the name that this installation gave it,
    # so that none can be forgotten.
    def name_roles(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> Any:
        return ROLE.sub(lambda found: logins.role(found[1]), statement), parameters

    event.listen(connection, "before_cursor_execute", name_roles, retval=True)
    connection.exec_driver_sql(f"select pg_advisory_lock({MIGRATION_LOCK})")
    connection.commit()
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


async def migrate(logins: Logins) -> None:
    creator: Callable[[], Awaitable[Any]] = lambda: connect(logins.owner_url)  # noqa: E731  # a name for its type
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=creator, poolclass=pool.NullPool
    )
    async with engine.connect() as connection:
        await connection.run_sync(run, logins)
    await engine.dispose()


asyncio.run(migrate(context.config.attributes["logins"]))
