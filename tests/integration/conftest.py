"""What integration tests share: a cluster, a writer on a cable, browsers that are closed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

import browsers
import clusters
import drafts
from cables import Cable, plugged
from hlas import writer
from hlas.api.express import Exchange, Express
from hlas.db import Database, log_in
from hlas.logins import APPLICATION, OPERATOR, Logins
from hlas.server import Connection
from hlas.tokens import Session
from hlas.writer import Writer


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with clusters.initialised() as path:
        yield path


@pytest.fixture
def data_dir(cluster: Path) -> Iterator[Path]:
    """One cluster for all, at rest before and after each test."""
    yield cluster
    clusters.end(cluster)


@pytest_asyncio.fixture(autouse=True)
async def _close_browsers() -> AsyncIterator[None]:
    yield
    while browsers.opened:
        await browsers.opened.pop().aclose()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is no fault: where time is not the point there is plenty of it."""
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60.0)
    monkeypatch.setattr(writer, "STATEMENT_SECONDS", 60.0)
    monkeypatch.setattr(writer, "CONNECT_SECONDS", 60.0)


@pytest_asyncio.fixture
async def cable(database_url: str) -> AsyncIterator[Cable]:
    async with plugged(database_url) as opened:
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
    await connection.execute("begin")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def session(operators: Database) -> Session:
    return await drafts.make_session(operators)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each request that was refused by the lane or came to it whole: did it answer."""
    seen: list[bool] = []
    complete, refuse = Exchange.complete, Exchange.refuse

    def completed(self: Exchange, body: bytes) -> bool:
        seen.append(complete(self, body))
        return seen[-1]

    def refused(self: Exchange) -> bool:
        is_refused = refuse(self)
        seen.extend([True] * is_refused)
        return is_refused

    monkeypatch.setattr(Exchange, "complete", completed)
    monkeypatch.setattr(Exchange, "refuse", refused)
    return seen


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that asked the lane."""
    seen: list[Connection] = []
    begin = Express.begin

    def watched(self: Express, connection: Connection) -> Exchange | None:
        seen.append(connection)
        return begin(self, connection)

    monkeypatch.setattr(Express, "begin", watched)
    return seen
