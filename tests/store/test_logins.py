"""Each connection logs in as its own role, and cannot switch to another.

Fails with one login that asks for its role in the start-up packet: `SET ROLE hlas_operator`,
`SET ROLE none` and `SET ROLE hlas_owner` bypassed isolation.
"""

import asyncio
import re
import shlex
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from factories import MakeLogins, Site, make_site, url_of
from hlas.doctor import checks
from hlas.settings import ConfigurationError
from hlas.store import embedded, migrations
from hlas.store.db import Database, check_role, connect, log_in
from hlas.store.logins import APPLICATION, LOGIN_ROLES, OPERATOR, Logins
from hlas.store.migrations.roles import PURPOSE, SETTINGS, queries

GUIDE = Path(__file__).parents[2] / "docs" / "operating.md"
NAMES = ("hlas_app", "hlas_operator", "hlas_tenant_admin", "hlas_writer", "hlas_resolver")
WHO = "select session_user || ' ' || current_user"
ESCAPES = [
    *(f"set role {name}" for name in (*NAMES, "hlas_owner", "postgres", "none")),
    *(f"set session authorization {name}" for name in (*NAMES, "hlas_owner", "postgres")),
    "set session authorization default",
    "reset session authorization",
    "reset role",
    "reset all",
    "discard all",
]


@pytest_asyncio.fixture
async def administrator(postgres_server: embedded.Server) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_server.superuser_url)
    yield connection
    await connection.close()


@pytest.mark.parametrize("kind", ["database", "tenant_admins", "operators", "writer"])
async def test_roles_cannot_be_switched(site: Site, operators: Database, kind: str) -> None:
    """Edge case 52: no connection of the service can switch to another role, or to none."""
    await make_site(site.live, operators)
    services = site.live.app.state.services
    role = {"tenant_admins": "hlas_tenant_admin", "operators": "hlas_operator"}.get(
        kind, "hlas_app"
    )
    if kind == "writer":
        await site.send("hello")
        connection = services.writer._connection
    else:
        connection = await getattr(services, kind)._pool.acquire()
    seen = 2 if kind == "operators" else 0
    for escape in ESCAPES:
        try:
            await connection.execute(escape)
        except asyncpg.InsufficientPrivilegeError:
            pass  # refused, as expected
        # DISCARD ALL drops prepared statements, so each query is prepared again.
        assert await connection.fetchval(f"{WHO} -- {escape}") == f"{role} {role}", escape
        count = await connection.fetchval(f"select count(*) from tenants -- {escape}")
        assert count == seen, escape
    if kind != "writer":
        await getattr(services, kind)._pool.release(connection)


async def migrate(logins: Logins) -> None:
    await asyncio.to_thread(migrations.upgrade, logins)


async def add_tenant(logins: Logins) -> None:
    operators = await Database.open(logins, OPERATOR)
    await operators.execute(
        "insert into tenants (id, slug, name) values (gen_random_uuid(), 'shop', 'Shop')"
    )
    await operators.close()


async def test_two_installations(empty: MakeLogins) -> None:
    """Two installations with their own prefixes on one server cannot access each other."""
    ours, theirs = await empty(), await empty()
    for one in (ours, theirs):
        await migrate(one)
        await add_tenant(one)
    for name in LOGIN_ROLES:
        # The database of one, with the roles and passwords of the other.
        mixed = theirs.at(ours.owner_url)
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for data"):
            await log_in(mixed, name)
    for url in (theirs.owner_url, ours.owner_url):
        other = ours if url == theirs.owner_url else theirs
        owner = await connect(url)
        for name in PURPOSE:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await owner.execute(f"set role {other.role(name)}")
        await owner.close()
    # Nothing in a migrated database belongs to the default prefix.
    owner = await connect(ours.owner_url)
    used = await owner.fetch(queries.used_in, [f"hlas_{name}" for name in PURPOSE])
    assert not any(row["is_this"] for row in used)
    await owner.close()


async def test_prefix_is_taken(empty: MakeLogins) -> None:
    """Roles that another database uses are refused in one line, and left unchanged."""
    ours = await empty()
    await migrate(ours)
    theirs = await empty(prefix=ours.prefix)
    with pytest.raises(ConfigurationError) as caught:
        await migrate(theirs)
    assert str(caught.value) == (
        f"DATABASE_ROLE_PREFIX: the roles {ours.prefix}_* belong to the database {ours.prefix} of "
        "this server; set another prefix for this installation"
    )
    await add_tenant(ours)
    await migrate(ours)


async def test_prefix_cannot_change(empty: MakeLogins) -> None:
    """A database that was set up with one prefix refuses another in one line."""
    ours = await empty()
    await migrate(ours)
    with pytest.raises(ConfigurationError) as caught:
        await migrate(replace(ours, prefix=f"{ours.prefix}_x"))
    assert str(caught.value) == (
        "DATABASE_ROLE_PREFIX: this database was set up with another prefix than "
        f"{ours.prefix}_x; set it back"
    )


async def test_without_createrole(empty: MakeLogins, administrator: asyncpg.Connection) -> None:
    """An owner without CREATEROLE gets SQL for an administrator, and it works."""
    logins = await empty("nocreaterole")
    with pytest.raises(ConfigurationError) as caught:
        await migrate(logins)
    head, _, script = str(caught.value).partition("\n")
    assert head.startswith("DATABASE_URL: its user may not set up the database roles")
    assert logins.login(APPLICATION).password not in script
    await administrator.execute(script)
    await migrate(logins)
    database = await Database.open(logins, APPLICATION)
    await check_role(database, logins.role(APPLICATION))
    await database.close()


async def test_password_is_never_sent(empty: MakeLogins, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement that creates a role has a valid verifier, not the password."""
    logins = await empty()
    sent: list[str] = []
    execute = asyncpg.Connection.execute

    async def listen(self: asyncpg.Connection, query: str, *arguments: Any) -> Any:
        sent.append(query)
        return await execute(self, query, *arguments)

    monkeypatch.setattr(asyncpg.Connection, "execute", listen)
    await migrate(logins)
    made = [query for query in sent if "password" in query]
    assert len(made) == len(LOGIN_ROLES)
    assert all("password 'SCRAM-SHA-256$4096:" in query for query in made)
    for name in LOGIN_ROLES:
        assert not any(logins.login(name).password in query for query in sent)


async def test_changed_password(empty: MakeLogins, administrator: asyncpg.Connection) -> None:
    """After the owner's password has changed, the next start sets those of the roles."""
    logins = await empty()
    await migrate(logins)
    assert await migrations.is_current(logins)
    await administrator.execute(f"alter role {logins.prefix} password 'another'")
    changed = replace(logins, owner_url=logins.owner_url.replace(f":{logins.prefix}@", ":another@"))
    assert not await migrations.is_current(changed)
    await migrate(changed)
    assert await migrations.is_current(changed)
    assert not await migrations.is_current(replace(changed, secret="x" * 32))


async def test_earlier_installation(empty: MakeLogins) -> None:
    """Roles of an earlier version, without logins and granted to the owner, are corrected."""
    logins = await empty()
    owner = await connect(logins.owner_url)
    for name in PURPOSE:
        await owner.execute(f"create role {logins.role(name)} nologin")
        await owner.execute(f"grant {logins.role(name)} to current_user with set true")
    await asyncio.to_thread(migrations.change_schema, logins)
    assert not await migrations.is_current(logins)
    await migrate(logins)
    assert await migrations.is_current(logins)
    for name in LOGIN_ROLES:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await owner.execute(f"set role {logins.role(name)}")
    await owner.close()


async def test_settings_of_the_roles(empty: MakeLogins) -> None:
    """Settings that a role changed for itself are reset by the next migration."""
    logins = await empty()
    await migrate(logins)
    serving = await log_in(logins, APPLICATION)
    await serving.execute("alter role current_user set synchronous_commit = off")
    await serving.execute("alter role current_user set search_path = pg_temp")
    # Except a setting that PostgreSQL does not know.
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await serving.execute("alter role current_user set app.tenant_id = 'mine'")
    await serving.close()
    assert not await migrations.is_current(logins)
    await migrate(logins)
    assert await migrations.is_current(logins)
    serving = await log_in(logins, APPLICATION)
    for setting, value in (*SETTINGS[APPLICATION].items(), ("search_path", '"$user", public')):
        # Keepalives exist only on TCP connections, and this is a unix socket.
        if not setting.startswith("tcp_"):
            assert await serving.fetchval("select current_setting($1)", setting) == value
    await serving.close()


async def test_documented_move(empty: MakeLogins, postgres_server: embedded.Server) -> None:
    """Rows moved as in docs/operating.md belong to the new roles, and are served."""
    old, new = await empty(), await empty()
    for logins in (old, new):
        await migrate(logins)
    await add_tenant(old)
    urls = {
        name: url_of(postgres_server.superuser_url, logins.prefix)
        for name, logins in (("OLD", old), ("NEW", new))
    }
    with tempfile.TemporaryDirectory() as directory:
        for line in re.findall(r"^pg_(?:dump|restore) .*$", GUIDE.read_text("utf-8"), re.MULTILINE):
            named = line.replace("OLD", urls["OLD"]).replace("NEW", urls["NEW"])
            program, *words = shlex.split(named)
            done = await asyncio.create_subprocess_exec(
                embedded.binary(program), *words, cwd=directory
            )
            assert await done.wait() == 0, line
    operators = await Database.open(new, OPERATOR)
    assert [row["slug"] for row in await operators.all("select slug from tenants")] == ["shop"]
    await operators.close()
    owner = await connect(new.owner_url)
    assert (await checks.check_roles(owner, new)).status == "ok"
    assert (await checks.check_isolation(owner, new)).status == "ok"
    await owner.close()


def test_no_password() -> None:
    """Without a password to derive from, one line names the setting."""
    for url in ("postgresql://hlas@db/hlas", "postgresql:///hlas?host=/run/postgresql"):
        with pytest.raises(ConfigurationError, match=r"^DATABASE_LOGIN_SECRET: .*DATABASE_URL"):
            Logins(url).login(APPLICATION)
        assert Logins(url, secret="s" * 32).login(APPLICATION).password
    same = {
        Logins(url).login(APPLICATION).password
        for url in (
            "postgresql://hlas:p%40ss@db/hlas",
            "postgresql://hlas:p%40ss@one:5432,two:5432/other?sslmode=require",
            "postgresql://hlas@db/hlas?password=p%40ss",
        )
    }
    assert len(same) == 1
    assert len({Logins("postgresql://h:p@d/h").login(name) for name in LOGIN_ROLES}) == 3
