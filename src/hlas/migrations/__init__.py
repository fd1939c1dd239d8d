"""Schema changes: hand-written Alembic revisions, run one at a time whoever starts them."""

import asyncio
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

HERE = Path(__file__).parent


def configuration(database_url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["database_url"] = database_url
    return config


def head() -> str:
    """The revision this code needs."""
    revision = ScriptDirectory.from_config(configuration("")).get_current_head()
    assert revision is not None
    return revision


def upgrade(database_url: str, revision: str = "head") -> None:
    command.upgrade(configuration(database_url), revision)


def downgrade(database_url: str, revision: str) -> None:
    command.downgrade(configuration(database_url), revision)


async def upgrade_in_thread(database_url: str) -> None:
    """For callers inside an event loop: Alembic's environment starts one of its own."""
    await asyncio.to_thread(upgrade, database_url)
