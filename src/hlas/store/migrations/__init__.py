"""Schema changes: hand-written Alembic revisions. Only one process migrates at a time."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from hlas.settings import ConfigurationError
from hlas.store.db import connect
from hlas.store.logins import Logins
from hlas.store.migrations import roles

if TYPE_CHECKING:
    from alembic.config import Config

HERE = Path(__file__).parent

# Alembic and SQLAlchemy take a second to load, so they are imported only to change a schema.


def configuration(logins: Logins) -> "Config":
    from alembic.config import Config  # noqa: PLC0415  # see above

    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["logins"] = logins
    return config


def head() -> str:
    """The revision this code needs: revisions are numbered, and there are no branches."""
    return max(revisions())


def revisions() -> set[str]:
    return {path.name.partition("_")[0] for path in HERE.glob("versions/[0-9]*_*.py")}


async def current(owner_url: str) -> str | None:
    """The revision of a database; None for one that was never migrated."""
    connection = await connect(owner_url)
    try:
        return str(await connection.fetchval("select version_num from alembic_version"))
    except asyncpg.UndefinedTableError:
        return None
    finally:
        await connection.close()


async def is_current(logins: Logins) -> bool:
    """Whether schema and roles are what this code needs; most starts find that they are."""
    return await current(logins.owner_url) == head() and await roles.are_ready(logins)


def upgrade(logins: Logins, revision: str = "head") -> None:
    """Create the roles, then run the missing revisions."""
    asyncio.run(roles.ensure(logins))
    change_schema(logins, revision)


def change_schema(logins: Logins, revision: str = "head") -> None:
    """Run the missing revisions; raise an error of one line if that fails."""
    from alembic import command, util  # noqa: PLC0415  # see above
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415  # see above

    try:
        command.upgrade(configuration(logins), revision)
    except util.CommandError:
        raise ConfigurationError(
            "DATABASE_URL: its schema was made by a newer version of Hlas; install that version"
        ) from None
    except DBAPIError as error:
        cause = error.orig.__cause__ if error.orig is not None else None
        reason = str(cause or error.orig).partition("\n")[0]
        raise ConfigurationError(f"DATABASE_URL: the schema cannot be changed: {reason}") from error


def downgrade(logins: Logins, revision: str) -> None:
    from alembic import command  # noqa: PLC0415  # see above

    command.downgrade(configuration(logins), revision)


async def upgrade_in_thread(logins: Logins) -> None:
    """For callers inside an event loop, because Alembic's environment starts its own."""
    await asyncio.to_thread(upgrade, logins)
