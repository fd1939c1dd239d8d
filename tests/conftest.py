"""Real parts for every test: one PostgreSQL for the run, a database of its own for each test."""

import asyncio
import io
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

import log_scan
from factories import Live, Site, make_site, serve_app
from hlas import migrations, postgres, telemetry
from hlas.db import Database
from hlas.errors import Unavailable
from hlas.logins import APPLICATION, OPERATOR, Logins
from hlas.migrations.roles import PURPOSE
from hlas.settings import Settings

# Neither a test's data nor its speed depends on what this costs; durability tests start their own.
FAST = {"fsync": "off", "max_connections": "300"}
TEMPLATE = "hlas_template"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    directory = Path(tempfile.mkdtemp(prefix="hlas-test-"))
    # As root the server is another user, and must be able to pass.
    directory.chmod(0o711)
    server = postgres.start(directory, settings=FAST)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def url_of(server_url: str, database: str) -> str:
    """The same server and user, another database."""
    head, _, query = server_url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}?{query}"


@pytest_asyncio.fixture(scope="session")
async def template_database(postgres_server: postgres.Server) -> str:
    await _administer(postgres_server, f"create database {TEMPLATE} owner hlas_owner")
    await migrations.upgrade_in_thread(Logins(url_of(postgres_server.url, TEMPLATE)))
    return TEMPLATE


async def _administer(server: postgres.Server, statement: str) -> None:
    connection = await asyncpg.connect(server.superuser_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def database_url(
    postgres_server: postgres.Server, template_database: str
) -> AsyncIterator[str]:
    """A migrated, empty database for this test alone."""
    name = f"test_{os.urandom(6).hex()}"
    await _administer(
        postgres_server, f"create database {name} template {template_database} owner hlas_owner"
    )
    yield url_of(postgres_server.url, name)
    await _administer(postgres_server, f"drop database {name} with (force)")


MakeLogins = Callable[..., Awaitable[Logins]]


@pytest_asyncio.fixture
async def empty(postgres_server: postgres.Server) -> AsyncIterator[MakeLogins]:
    """Make empty databases, each with an owner and a prefix of its own; drop them afterwards."""
    made: list[tuple[str, Logins]] = []

    async def make(rights: str = "createrole", **changes: str) -> Logins:
        name = f"empty_{os.urandom(6).hex()}"
        await _administer(postgres_server, f"create role {name} login {rights} password '{name}'")
        await _administer(postgres_server, f"create database {name} owner {name}")
        url = re.sub(r"//.*?@", f"//{name}:{name}@", url_of(postgres_server.url, name))
        made.append((name, Logins(url, **{"prefix": name, **changes})))
        return made[-1][1]

    yield make
    for name, _ in made:
        await _administer(postgres_server, f"drop database {name} with (force)")
    for name, logins in made:
        for role in (*map(logins.role, PURPOSE), name):
            await _administer(postgres_server, f"drop role if exists {role}")


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Queries as the application's role."""
    opened = await Database.open(Logins(database_url), APPLICATION)
    await _connect(opened)
    yield opened
    await opened.close()


@pytest_asyncio.fixture
async def operators(database_url: str) -> AsyncIterator[Database]:
    """Queries as the operators' role."""
    opened = await Database.open(Logins(database_url), OPERATOR, statement_seconds=60)
    await _connect(opened)
    yield opened
    await opened.close()


async def _connect(database: Database) -> None:
    """A machine that has other work takes longer to connect than a visitor would be let wait."""
    async with asyncio.timeout(60):
        while True:
            try:
                await database.one("select 1")
            except Unavailable:
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture
def settings(database_url: str, request: pytest.FixtureRequest) -> Settings:
    """Limits out of the way; `@pytest.mark.settings(max_json_body_bytes=1024)` overrides any."""
    marker = request.node.get_closest_marker("settings")
    return make_settings(database_url, **(marker.kwargs if marker else {}))


def make_settings(database_url: str, **overrides: Any) -> Settings:
    generous = {
        f"rate_limit_{name}": "1000000/min"
        for name in (
            "session_ip",
            "session_tenant",
            "messages_ip",
            "messages_tenant",
            "messages_conversation",
            "reads_ip",
        )
    }
    values = {
        "database_url": database_url,
        "widget_session_jwt_secret": log_scan.SECRET,
        "max_connections_ip": 0,
        **generous,
        **overrides,
    }
    return Settings(_env_file=None, **values)


@pytest.fixture
def logs() -> Iterator[io.BytesIO]:
    """Everything that is logged during the test, as JSON lines; searched for secrets at its end."""
    stream = io.BytesIO()
    log_scan.forget()
    telemetry.configure("debug", "json", stream)
    yield stream
    telemetry.flush()
    log_scan.check(stream.getvalue())


@pytest_asyncio.fixture
async def live_server(settings: Settings, logs: io.BytesIO) -> AsyncIterator[Live]:
    """The application on a real socket of this machine."""
    async with serve_app(settings, logs) as live:
        yield live


@pytest_asyncio.fixture
async def site(live_server: Live, operators: Database) -> Site:
    """An active tenant with one domain, and a visitor's session there."""
    return await make_site(live_server, operators)
