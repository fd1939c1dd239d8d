"""Migrations: upgrade and downgrade, as an owner, as a superuser, and without rights."""

import asyncio
import re
import subprocess
import sys

import asyncpg
import pytest

from factories import MakeLogins
from hlas.settings import ConfigurationError
from hlas.store import embedded, migrations
from hlas.store.db import Database, check_role, connect
from hlas.store.logins import APPLICATION, OPERATOR, Logins


def dump(url: str) -> str:
    """The schema with owners and rights; extensions are kept, because others may use them."""
    done = subprocess.run(
        [embedded.binary("pg_dump"), "--schema-only", "--exclude-extension=*", "--dbname", url],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    schema = re.sub(r"^\\(un)?restrict .*$", "", done.stdout, flags=re.MULTILINE)
    return re.sub(r"^(CREATE TABLE .*\n)((?:    .*\n)+)", _sort_columns, schema, flags=re.MULTILINE)


def _sort_columns(table: re.Match[str]) -> str:
    """A column that a downgrade adds again is the last one."""
    lines = sorted(line.rstrip(",") for line in table[2].splitlines())
    return table[1] + "".join(f"{line}\n" for line in lines)


async def migrate(logins: Logins) -> None:
    await asyncio.to_thread(migrations.upgrade, logins)


async def test_upgrade_and_downgrade(empty: MakeLogins) -> None:
    """Upgrade, downgrade and upgrade again give the same schema, for each revision."""
    logins = await empty()
    revisions = sorted(
        path.name.partition("_")[0] for path in migrations.HERE.glob("versions/0*.py")
    )
    dumps = {}
    for revision in revisions:
        await asyncio.to_thread(migrations.upgrade, logins, revision)
        dumps[revision] = await asyncio.to_thread(dump, logins.owner_url)
    assert "create policy tenant_isolation" in dumps[revisions[-1]].lower()
    for revision in reversed(revisions[:-1]):
        await asyncio.to_thread(migrations.downgrade, logins, revision)
        assert await asyncio.to_thread(dump, logins.owner_url) == dumps[revision], revision
    await asyncio.to_thread(migrations.downgrade, logins, "base")
    bare = await asyncio.to_thread(dump, logins.owner_url)
    assert set(re.findall(r"CREATE TABLE (\S+)", bare)) == {"public.alembic_version"}
    assert not re.findall(r"CREATE (?:FUNCTION|POLICY|TRIGGER)", bare)
    await migrate(logins)
    assert await asyncio.to_thread(dump, logins.owner_url) == dumps[revisions[-1]]
    assert await migrations.current(logins.owner_url) == migrations.head() == revisions[-1]


async def test_superuser(empty: MakeLogins) -> None:
    """With a superuser's URL the service still runs as a role that is bound by isolation."""
    logins = await empty("superuser")
    await migrate(logins)
    database = await Database.open(logins, APPLICATION)
    await check_role(database, logins.role(APPLICATION))
    assert await database.all("select * from tenants") == []
    await database.close()
    operators = await Database.open(logins, OPERATOR)
    await operators.execute(
        "insert into tenants (id, slug, name) values (gen_random_uuid(), 'shop', 'Shop')"
    )
    await operators.execute(
        "insert into tenant_domains (tenant_id, domain, host, is_wildcard) "
        "select id, 'shop.example', 'shop.example', false from tenants"
    )
    await operators.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("alter table messages owner to {role}", "{role} owns tables"),
        ("grant {prefix}_operator to {role}", "{role} is a member of another role"),
        ("alter role {role} bypassrls", "{role} may bypass the isolation"),
        ("alter role {role} superuser", "{role} may bypass the isolation"),
        ("alter role {role} set app.tenant_id = 'x'", "app.tenant_id is set before any tenant"),
    ],
)
async def test_unsafe_role_is_refused(empty: MakeLogins, change: str, reason: str) -> None:
    """Edge cases 37, 52: a serving role with rights that break isolation is refused at start."""
    logins = await empty("superuser")
    await migrate(logins)
    role = logins.role(APPLICATION)
    owner = await connect(logins.owner_url)
    await owner.execute(change.format(role=role, prefix=logins.prefix))
    database = await Database.open(logins, APPLICATION)
    with pytest.raises(ConfigurationError) as caught:
        await check_role(database, role)
    assert str(caught.value).startswith("DATABASE_URL: connections must log in as the role")
    assert reason.format(role=role) in str(caught.value)
    await database.close()
    await owner.execute(f"reassign owned by {role} to current_user")
    await owner.close()


async def test_another_role_is_refused(operators: Database) -> None:
    """Edge case 37: a connection with another role than expected is refused at start."""
    with pytest.raises(ConfigurationError, match=r"; they run as hlas_operator$"):
        await check_role(operators, "hlas_app")


async def test_newer_schema(empty: MakeLogins) -> None:
    """A schema of a newer version is one clear line, not a traceback."""
    logins = await empty()
    await migrate(logins)
    connection = await asyncpg.connect(logins.owner_url)
    await connection.execute("update alembic_version set version_num = '9999'")
    await connection.close()
    with pytest.raises(ConfigurationError, match=r"newer version of Hlas"):
        await migrate(logins)


async def test_two_at_once(empty: MakeLogins) -> None:
    """Two servers that start together migrate one after the other."""
    logins = await empty()
    script = (
        "import sys; from hlas.store.logins import Logins; from hlas.store import migrations; "
        "migrations.upgrade(Logins(*sys.argv[1:]))"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, logins.owner_url, logins.prefix
        )
        for _ in range(2)
    ]
    assert [await process.wait() for process in processes] == [0, 0]
    assert await migrations.current(logins.owner_url) == migrations.head()
