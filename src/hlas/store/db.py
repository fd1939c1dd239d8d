"""Connections to PostgreSQL: pools for each role, queries from .sql files, one outage error."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import asyncpg
import orjson

from hlas.errors import Unavailable
from hlas.settings import ConfigurationError
from hlas.store.logins import Login, Logins

Row: TypeAlias = asyncpg.Record
Result = TypeVar("Result")

# Visitors get an answer within 3 s: what takes longer than this is reported as unavailable.
ACQUIRE_SECONDS = 1.0
STATEMENT_SECONDS = 1.5
CONNECT_SECONDS = 1.5

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,
)

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries:
    """The queries of one noun: `-- name: x` in its .sql file is `queries.x` here."""

    def __init__(self, path: Path) -> None:
        _, *parts = _NAME.split(path.read_text("utf-8"))
        self.by_name = dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))

    @classmethod
    def beside(cls, module_file: str) -> Self:
        return cls(Path(module_file).with_suffix(".sql"))

    def __getattr__(self, name: str) -> str:
        try:
            return str(self.by_name[name])
        except KeyError:
            raise AttributeError(name) from None


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Needs no reset query on release, because we set transaction-local state only."""

    def get_reset_query(self) -> str:
        return ""


async def _use_json(connection: asyncpg.Connection) -> None:
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(
            kind, schema="pg_catalog", encoder=_dump, decoder=orjson.loads
        )


def _dump(value: object) -> str:
    return orjson.dumps(value).decode()


async def connect(
    url: str, login: Login | None = None, *, seconds: float = 10, **settings: str
) -> asyncpg.Connection:
    """Open one connection, as the user in the URL or as `login`."""
    return await asyncpg.connect(
        url,
        **_credentials(login),
        server_settings={"application_name": "hlas", **settings},
        timeout=seconds,
        connection_class=_Connection,
    )


def _credentials(login: Login | None) -> dict[str, str]:
    """Arguments for asyncpg that override the user and password in a URL."""
    return {"user": login.user, "password": login.password} if login else {}


async def log_in(
    logins: Logins, role: str, *, seconds: float = 10, **settings: str
) -> asyncpg.Connection:
    """Open one connection as a role; it cannot switch to another, being a member of none."""
    return await connect(logins.owner_url, logins.login(role), seconds=seconds, **settings)


def columns(rows: Sequence[tuple[object, ...]]) -> list[list[object]]:
    """Turn rows into one array per column, as `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)]


class TenantTurns:
    """How many connections each tenant may use at once, so that one cannot lock the others out."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def find(self, tenant_id: str) -> asyncio.Semaphore:
        return self._by_tenant.setdefault(tenant_id, asyncio.Semaphore(self._size))


class Database:
    """Queries as one role. A single statement commits by itself; transaction() is for more."""

    def __init__(
        self, pool: asyncpg.Pool, turns: asyncio.Semaphore, tenant_turns: "TenantTurns"
    ) -> None:
        self._pool = pool
        self._tenant_turns = tenant_turns
        # The pool is not fair: newcomers may overtake those who wait, and under load some waited
        # twenty times longer than most. The semaphore is first come, first served.
        self._turns = turns

    @classmethod
    async def open(
        cls,
        logins: Logins,
        role: str,
        *,
        size: int = 8,
        tenant_size: int | None = None,
        statement_seconds: float = STATEMENT_SECONDS,
    ) -> Self:
        """`tenant_size` is how many connections one tenant may use at once, of all by default."""
        pool = await asyncpg.create_pool(
            logins.owner_url,
            **_credentials(logins.login(role)),
            min_size=0,
            max_size=size,
            timeout=CONNECT_SECONDS,
            command_timeout=statement_seconds,
            max_inactive_connection_lifetime=300,
            init=_use_json,
            connection_class=_Connection,
            # Poolers refuse other parameters; they are settings of the role (migrations/roles.py).
            server_settings={"application_name": "hlas"},
        )
        return cls(pool, asyncio.Semaphore(size), TenantTurns(tenant_size or size))

    async def close(self) -> None:
        try:
            await asyncio.wait_for(self._pool.close(), 5)
        except AWAY:
            self._pool.terminate()

    async def _borrow(self) -> asyncpg.Connection:
        async with asyncio.timeout(ACQUIRE_SECONDS):
            await self._turns.acquire()
            try:
                return await self._pool.acquire()
            except BaseException:
                self._turns.release()
                raise

    async def _give_back(self, connection: asyncpg.Connection) -> None:
        try:
            await self._pool.release(connection)
        finally:
            self._turns.release()

    async def _run(self, call: Callable[[asyncpg.Connection], Awaitable[Result]]) -> Result:
        try:
            connection = await self._borrow()
            try:
                return await call(connection)
            finally:
                await self._give_back(connection)
        except AWAY as error:
            raise Unavailable from error

    async def one(self, query: str, *arguments: object) -> Row | None:
        return await self._run(lambda connection: connection.fetchrow(query, *arguments))

    async def all(self, query: str, *arguments: object) -> list[Row]:
        rows: list[Row] = await self._run(lambda connection: connection.fetch(query, *arguments))
        return rows

    async def execute(self, query: str, *arguments: object) -> str:
        return str(await self._run(lambda connection: connection.execute(query, *arguments)))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """For two or more statements. Await nothing slow inside."""
        try:
            connection = await self._borrow()
            try:
                async with connection.transaction():
                    yield connection
            finally:
                await self._give_back(connection)
        except AWAY as error:
            raise Unavailable from error


class Confined(Database):
    """A database as one tenant sees it: row-level security hides the rows of all others.

    Only for roles that are bound by it; the role of operators is not.
    """

    def __init__(self, database: Database, tenant_id: str) -> None:
        super().__init__(database._pool, database._turns, database._tenant_turns)  # noqa: SLF001  # the same, as one tenant
        self._tenant_id = tenant_id
        self._own_turns = self._tenant_turns.find(tenant_id)

    async def _borrow(self) -> asyncpg.Connection:
        async with asyncio.timeout(ACQUIRE_SECONDS):
            await self._own_turns.acquire()
            try:
                return await super()._borrow()
            except BaseException:
                self._own_turns.release()
                raise

    async def _give_back(self, connection: asyncpg.Connection) -> None:
        try:
            await super()._give_back(connection)
        finally:
            self._own_turns.release()

    async def _run(self, call: Callable[[asyncpg.Connection], Awaitable[Result]]) -> Result:
        async with self.transaction() as connection:
            return await call(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        async with super().transaction() as connection:
            await connection.execute(
                "select set_config('app.tenant_id', $1, true)", self._tenant_id
            )
            yield connection


queries = Queries.beside(__file__)


@dataclass(frozen=True, slots=True)
class DatabaseRole:
    """A role of the server, and what it could do beyond what it was granted."""

    name: str
    can_log_in: bool
    is_privileged: bool
    owns_tables: bool
    is_member: bool
    settings: frozenset[str]

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            name=row["name"],
            can_log_in=row["can_log_in"],
            is_privileged=row["privileged"],
            owns_tables=row["owner"],
            is_member=row["member"],
            settings=frozenset(row["settings"]),
        )


async def check_role(database: Database, role: str) -> None:
    """Refuse to serve with rights that would let a query read other tenants' rows."""
    session = await database.one(queries.session)
    if session is None or {session["session_name"], session["current_name"]} != {role}:
        name = session["current_name"] if session else "unknown"
        reason = f"they run as {name}"
    elif session["tenant"]:
        reason = "app.tenant_id is set before any tenant is known"
    else:
        [row] = await database.all(queries.roles, [role])
        reason = find_unsafe_right(DatabaseRole.from_row(row))
    if reason:
        raise ConfigurationError(
            f"DATABASE_URL: connections must log in as the role {role}, which must not be a "
            "superuser, own tables or be a member of another role, and must be bound by row-level "
            f"security; {reason}"
        )


async def find_roles(connection: asyncpg.Connection, names: Sequence[str]) -> list[DatabaseRole]:
    """Those of the named roles that exist."""
    return [DatabaseRole.from_row(row) for row in await connection.fetch(queries.roles, names)]


def find_unsafe_right(role: DatabaseRole) -> str:
    """How a serving role could bypass isolation; empty if it cannot."""
    if role.is_privileged:
        return f"{role.name} may bypass the isolation of tenants"
    if role.owns_tables:
        return f"{role.name} owns tables, and could switch their isolation off"
    if role.is_member:
        return f"{role.name} is a member of another role, and could switch to it"
    return ""
