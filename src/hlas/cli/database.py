"""`hlas migrate`, and how every other command reaches the database."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeVar

import asyncpg
import orjson
import typer
from pydantic import BaseModel, ValidationError

from hlas import log
from hlas import settings as configuration
from hlas.errors import TenantError
from hlas.settings import ConfigurationError, Settings
from hlas.store import embedded, migrations
from hlas.store.db import Database, connect
from hlas.store.embedded.cluster import locate
from hlas.store.logins import OPERATOR, Logins

Result = TypeVar("Result")
Content = TypeVar("Content", bound=BaseModel)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

OLDEST_MAJOR = 15
# Not printable for Python, and harmless: a new line and the spaces of numbers.
_SPACES = frozenset("\n\u00a0\u202f")


def prepare() -> Settings:
    settings = configuration.load()
    log.configure("warning", "console")
    return settings


def is_missing(settings: Settings) -> bool:
    """Whether there is no embedded database where these settings look for it."""
    return settings.embedded and locate(settings.data_dir.resolve()) is None


def require_database(settings: Settings) -> None:
    """Refuse to start a second, empty database in the wrong directory."""
    if is_missing(settings):
        raise ConfigurationError(
            f"there is no database in {settings.data_dir.resolve()}; go to the directory Hlas "
            "runs in, or set DATA_DIR"
        )


@contextmanager
def database_url(settings: Settings, *, make: bool = False) -> Iterator[str]:
    """The database of these settings; an embedded one is started when it does not run."""
    if settings.database_url:
        yield settings.database_url
        return
    if not make:
        require_database(settings)
    elif is_missing(settings):
        typer.echo(f"Creating a database in {settings.data_dir.resolve()}.", err=True)
    with embedded.open_server(settings.data_dir) as server:
        yield server.url


async def require_server(url: str) -> None:
    """Raise an error of one line if the server cannot be used."""
    try:
        connection = await connect(url)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigurationError(f"DATABASE_URL: cannot connect: {reason}") from None
    try:
        if connection.get_server_version().major < OLDEST_MAJOR:
            raise ConfigurationError(f"DATABASE_URL: PostgreSQL {OLDEST_MAJOR} or newer is needed")
    finally:
        await connection.close()


def upgrade(logins: Logins) -> None:
    """Bring roles and schema up to date, if they are not."""
    asyncio.run(require_server(logins.owner_url))
    if not asyncio.run(migrations.is_current(logins)):
        migrations.upgrade(logins)


def with_operators(work: Callable[[Database], Awaitable[Result]], *, make: bool = False) -> Result:
    """Run a command as the operators' role; an embedded database is started if needed."""
    settings = prepare()

    async def run(logins: Logins) -> Result:
        database = await Database.open(logins, OPERATOR, size=2, statement_seconds=60)
        try:
            return await work(database)
        finally:
            await database.close()

    with database_url(settings, make=make) as url:
        logins = Logins.from_settings(settings, url)
        upgrade(logins)
        return asyncio.run(run(logins))


def validate(kind: type[Content], given: Mapping[str, object]) -> Content:
    """Check options; the first problem is an error of one line."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]).replace("_", " ") if first["loc"] else ""
        raise TenantError(f"{name}: {first['msg']}" if name else first["msg"]) from None


def show(value: object, *, as_json: bool, text: str) -> None:
    if as_json:
        text = orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2).decode()
    if text:
        typer.echo("".join(map(_printable, text)))


def _printable(letter: str) -> str:
    """Escaped as in JSON if it would drive a terminal: tenants and visitors write these texts."""
    return letter if letter.isprintable() or letter in _SPACES else json.dumps(letter)[1:-1]


def migrate(*, as_json: AsJson = False) -> None:
    """Bring the database's schema up to date."""
    settings = prepare()
    with database_url(settings, make=True) as url:
        upgrade(Logins.from_settings(settings, url))
    head = migrations.head()
    show({"revision": head}, as_json=as_json, text=f"The schema is at revision {head}.")
