"""Migrations: there and back again, as an owner, as a superuser, and without the rights."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest
import pytest_asyncio

from conftest import url_of
from hlas import migrations, postgres
from hlas.db import Database, check_role
from hlas.migrations.roles import APPLICATION, OPERATOR
from hlas.settings import ConfigurationError

MakeDatabase = Callable[[str], Awaitable[str]]


@pytest_asyncio.fixture
async def administrator(postgres_server: postgres.Server) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_server.superuser_url)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def empty(administrator: asyncpg.Connection) -> AsyncIterator[MakeDatabase]:
    """Make empty databases, and drop them afterwards."""
    made: list[str] = []

    async def make(owner: str) -> str:
        made.append(f"empty_{os.urandom(6).hex()}")
        await administrator.execute(f'create database {made[-1]} owner "{owner}"')
        return made[-1]

    yield make
    for name in made:
        await administrator.execute(f"drop database {name} with (force)")


def dump(url: str) -> str:
    """The schema with owners and rights; extensions stay, since others may use them too."""
    done = subprocess.run(
        [postgres.binary("pg_dump"), "--schema-only", "--exclude-extension=*", "--dbname", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return re.sub(r"^\\(un)?restrict .*$", "", done.stdout, flags=re.MULTILINE)


async def migrate(url: str) -> None:
    await asyncio.to_thread(migrations.upgrade, url)


async def test_there_and_back(postgres_server: postgres.Server, empty: MakeDatabase) -> None:
    """Upgrade, downgrade and upgrade again give the same schema, each revision its own undoing."""
    url = url_of(postgres_server.url, await empty("hlas_owner"))
    revisions = sorted(
        path.name.partition("_")[0] for path in migrations.HERE.glob("versions/0*.py")
    )
    dumps = {}
    for revision in revisions:
        await asyncio.to_thread(migrations.upgrade, url, revision)
        dumps[revision] = await asyncio.to_thread(dump, url)
    assert "create policy tenant_isolation" in dumps[revisions[-1]].lower()
    for revision in reversed(revisions[:-1]):
        await asyncio.to_thread(migrations.downgrade, url, revision)
        assert await asyncio.to_thread(dump, url) == dumps[revision], revision
    await asyncio.to_thread(migrations.downgrade, url, "base")
    bare = await asyncio.to_thread(dump, url)
    assert set(re.findall(r"CREATE TABLE (\S+)", bare)) == {"public.alembic_version"}
    assert not re.findall(r"CREATE (?:FUNCTION|POLICY|TRIGGER)", bare)
    await migrate(url)
    assert await asyncio.to_thread(dump, url) == dumps[revisions[-1]]
    assert await migrations.current(url) == migrations.head() == revisions[-1]


async def test_superuser(postgres_server: postgres.Server, empty: MakeDatabase) -> None:
    """With a superuser's URL the service still runs as a role that is bound by isolation."""
    url = url_of(postgres_server.superuser_url, await empty("postgres"))
    await migrate(url)
    database = await Database.open(url, APPLICATION)
    await check_role(database, APPLICATION)
    assert await database.all("select * from tenants") == []
    await database.close()
    operators = await Database.open(url, OPERATOR)
    await operators.execute(
        "insert into tenants (id, slug, name) values (gen_random_uuid(), 'shop', 'Shop')"
    )
    await operators.execute(
        "insert into tenant_domains (tenant_id, domain, host, is_wildcard) "
        "select id, 'shop.example', 'shop.example', false from tenants"
    )
    await operators.close()


async def test_unsafe_role_is_refused(postgres_server: postgres.Server) -> None:
    """Edge case 37: a connection that runs as a superuser or an owner is refused at start."""
    for url, role in (
        (postgres_server.superuser_url, "postgres"),
        (postgres_server.url, "hlas_owner"),
    ):
        database = await Database.open(url, role)
        with pytest.raises(ConfigurationError, match=r"^DATABASE_URL: .* they run as "):
            await check_role(database, APPLICATION)
        await database.close()


async def test_without_createrole(
    postgres_server: postgres.Server, empty: MakeDatabase, administrator: asyncpg.Connection
) -> None:
    """A user who may not create roles is given the SQL for the administrator, and it works."""
    user = f"plain-{os.urandom(4).hex()}"
    await administrator.execute(f"create role \"{user}\" login password 'plain'")
    name = await empty(user)
    host = url_of(postgres_server.url, name)
    url = re.sub(r"//[^@/]*@", f"//{user}:plain@", host)
    try:
        with pytest.raises(ConfigurationError) as caught:
            await migrate(url)
        head, _, script = str(caught.value).partition("\n")
        assert head.startswith("DATABASE_URL: its user may not create the role")
        for line in script.splitlines():
            try:
                await administrator.execute(line)
            except asyncpg.DuplicateObjectError:
                assert line.startswith("create role"), "the server has the roles already"
        for extension in ("pg_trgm", "unaccent"):
            owner = await asyncpg.connect(url_of(postgres_server.superuser_url, name))
            await owner.execute(f"create extension if not exists {extension}")
            await owner.close()
        await migrate(url)
        database = await Database.open(url, APPLICATION)
        await check_role(database, APPLICATION)
        await database.close()
    finally:
        await administrator.execute(f"drop database {name} with (force)")
        await administrator.execute(f'drop role "{user}"')
        await administrator.execute(f"create database {name}")


async def test_newer_schema(postgres_server: postgres.Server, empty: MakeDatabase) -> None:
    """A schema of a newer version is one clear line, not a traceback."""
    url = url_of(postgres_server.url, await empty("hlas_owner"))
    await migrate(url)
    connection = await asyncpg.connect(url)
    await connection.execute("update alembic_version set version_num = '9999'")
    await connection.close()
    with pytest.raises(ConfigurationError, match=r"newer version of Hlas"):
        await migrate(url)


async def test_two_at_once(postgres_server: postgres.Server, empty: MakeDatabase) -> None:
    """Two servers that start together migrate one after the other."""
    url = url_of(postgres_server.url, await empty("hlas_owner"))
    script = "import os; from hlas.migrations import upgrade; upgrade(os.environ['DATABASE_URL'])"
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, env={**os.environ, "DATABASE_URL": url}
        )
        for _ in range(2)
    ]
    assert [await process.wait() for process in processes] == [0, 0]
    assert await migrations.current(url) == migrations.head()
