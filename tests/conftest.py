"""Fixtures with real services: one PostgreSQL for the run, a database for each test."""

import asyncio
import io
import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

import browsers
import clusters
import drafts
import log_scan
from cables import Cable, open_cable
from factories import Live, MakeLogins, Site, make_settings, make_site, serve_app, url_of
from hlas import log
from hlas.errors import Unavailable
from hlas.settings import Settings
from hlas.store import embedded, migrations, writer
from hlas.store.db import Database, log_in
from hlas.store.logins import APPLICATION, OPERATOR, Logins
from hlas.store.migrations.roles import PURPOSE
from hlas.store.writer import Writer
from hlas.visitors.tokens import Session
from scripted_agent import ScriptedAgent

# No fsync, for speed, and little WAL, for memory; tests of durability start their own server.
FAST = {"fsync": "off", "max_connections": "300", "max_wal_size": "128MB"}
TEMPLATE = "hlas_template"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[embedded.Server]:
    with clusters.open_directory(clusters.find_memory()) as directory:
        server = embedded.start(directory, settings=FAST)
        try:
            yield server
        finally:
            server.stop()


@pytest_asyncio.fixture(scope="session")
async def template_database(postgres_server: embedded.Server) -> str:
    await _administer(postgres_server, f"create database {TEMPLATE} owner hlas_owner")
    await migrations.upgrade_in_thread(Logins(url_of(postgres_server.url, TEMPLATE)))
    return TEMPLATE


async def _administer(server: embedded.Server, statement: str) -> None:
    connection = await asyncpg.connect(server.superuser_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest_asyncio.fixture
async def database_url(
    postgres_server: embedded.Server, template_database: str
) -> AsyncIterator[str]:
    """A migrated, empty database for this test alone."""
    name = f"test_{os.urandom(6).hex()}"
    await _administer(
        postgres_server, f"create database {name} template {template_database} owner hlas_owner"
    )
    yield url_of(postgres_server.url, name)
    await _administer(postgres_server, f"drop database {name} with (force)")


@pytest_asyncio.fixture
async def empty(postgres_server: embedded.Server) -> AsyncIterator[MakeLogins]:
    """Create empty databases, each with an owner and a prefix of its own; drop them afterwards."""
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
    """Retry for longer than a request would wait, because the machine may be busy."""
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
    """Settings with limits off; `@pytest.mark.settings(max_json_body_bytes=1024)` overrides any."""
    marker = request.node.get_closest_marker("settings")
    return make_settings(database_url, **(marker.kwargs if marker else {}))


@pytest.fixture
def logs() -> Iterator[io.BytesIO]:
    """Everything logged during the test, as JSON lines; searched for secrets at the end."""
    stream = io.BytesIO()
    log_scan.forget()
    log.configure("debug", "json", stream)
    yield stream
    log.flush()
    log_scan.check(stream.getvalue())


@pytest_asyncio.fixture
async def live_server(settings: Settings, logs: io.BytesIO) -> AsyncIterator[Live]:
    """The application on a real socket of this machine."""
    async with serve_app(settings, logs) as live:
        yield live


@pytest_asyncio.fixture
async def site(live_server: Live, operators: Database) -> Site:
    """An active tenant with one domain, and a visitor's session there; people answer."""
    return await make_site(live_server, operators)


@pytest_asyncio.fixture
async def answered(live_server: Live, operators: Database) -> Site:
    """The same, and the agent answers."""
    return await make_site(live_server, operators, handler="agent")


@pytest_asyncio.fixture
async def workers(
    settings: Settings, logs: io.BytesIO, operators: Database
) -> AsyncIterator[list[Live]]:
    """Two workers on one database, whose agents stream what they are asked for."""
    async with serve_app(settings, logs) as first, serve_app(settings, logs) as second:
        for live in (first, second):
            live.app.state.services.runner._agent = ScriptedAgent()
        yield [first, second]


@pytest_asyncio.fixture
async def visit(workers: list[Live], operators: Database) -> Site:
    """A visitor on the first of two workers."""
    return await make_site(workers[0], operators, handler="agent")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with clusters.make_data_dir() as path:
        yield path


@pytest.fixture
def data_dir(cluster: Path) -> Iterator[Path]:
    """One cluster for all tests, stopped before and after each."""
    yield cluster
    clusters.end(cluster)


@pytest_asyncio.fixture(autouse=True)
async def _close_browsers() -> AsyncIterator[None]:
    yield
    while browsers.opened:
        await browsers.opened.pop().aclose()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts, for tests that do not measure time on a machine that may be slow."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 60.0)


@pytest_asyncio.fixture
async def cable(database_url: str) -> AsyncIterator[Cable]:
    async with open_cable(database_url) as opened:
        yield opened


@pytest_asyncio.fixture
async def store(cable: Cable, patient: None) -> AsyncIterator[Writer]:
    opened = Writer(Logins(cable.url), APPLICATION)
    yield opened
    cable.silent = cable.unplugged = False
    await opened.close()


@pytest_asyncio.fixture
async def locker(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another process on the same database, in a transaction."""
    connection = await log_in(Logins(database_url), OPERATOR)
    # A test that needs long to begin on a busy machine keeps its transaction.
    await connection.execute("set idle_in_transaction_session_timeout = 0; begin")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def session(operators: Database) -> Session:
    return await drafts.make_session(operators)
