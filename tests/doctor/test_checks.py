"""The doctor finds each fault when it exists, and only then.

Each test plants a fault; `test_healthy` proves that the checks do not always fail.
"""

import asyncio
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
import orjson
import pytest
from redis import Redis

from clusters import find_memory, make_data_dir
from factories import make_settings, url_of
from hlas.doctor import checks
from hlas.doctor.finding import Finding
from hlas.settings import Settings
from hlas.store import embedded, migrations
from hlas.store.db import connect
from hlas.store.logins import Logins
from hlas.visitors import keys
from processes import environment, hlas, serve_process
from redis_servers import run_redis

STRONG = "pQ9vK2mX7rT4wZ8sL1nB6yH3cF5dG0jA+uE/oiNRMVSkW"


class Free(NamedTuple):
    free: int


@asynccontextmanager
async def superuser(server: embedded.Server, url: str) -> AsyncIterator[asyncpg.Connection]:
    """A transaction that is rolled back, so that faults of the whole server stay in the test."""
    name = url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(url_of(server.superuser_url, name))
    try:
        await connection.execute("begin")
        yield connection
    finally:
        await connection.close()


def of(found: list[Finding], name: str) -> Finding:
    [one] = [finding for finding in found if finding.name == name]
    return one


async def test_missing_migration(database_url: str) -> None:
    """A schema that is too old, too new or missing is found."""
    connection = await connect(database_url)
    assert (await checks.check_migrations(connection)).status == "ok"
    await asyncio.to_thread(migrations.downgrade, Logins(database_url), "0003")
    behind = await checks.check_migrations(connection)
    assert (behind.status, behind.fix) == ("fail", "run `hlas migrate`")
    assert "0003" in behind.found
    await connection.execute("update alembic_version set version_num = '9999'")
    assert "newer version" in (await checks.check_migrations(connection)).fix
    await connection.execute("drop table alembic_version")
    assert (await checks.check_migrations(connection)).status == "fail"
    await connection.close()


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("alter table messages disable row level security", "messages: row-level security is off"),
        ("alter table events no force row level security", "events: row-level security is not for"),
        ("drop policy tenant_isolation on knowledge", "knowledge: the policy tenant_isolation is"),
        (
            "alter policy tenant_isolation on tenants using (true)",
            "tenants: the policy tenant_isolation is missing or changed",
        ),
        ("create policy more on messages using (true)", "messages: another policy lets"),
        ("create policy more on messages to hlas_app using (true)", "messages: another policy"),
        (
            "create table notes (tenant_id uuid)",
            "notes: row-level security is off",
        ),
    ],
)
async def test_isolation(database_url: str, statement: str, told: str) -> None:
    """Edge case 37: isolation that was disabled or weakened on any table is found."""
    connection = await connect(database_url)
    assert (await checks.check_isolation(connection, Logins(database_url))).status == "ok"
    await connection.execute(statement)
    found = await checks.check_isolation(connection, Logins(database_url))
    assert found.status == "fail"
    assert told in found.found
    if "row-level" in told:
        await connection.execute(found.fix)
        again = (await checks.check_isolation(connection, Logins(database_url))).found
        assert "row-level security" not in again, "the remedy works as it is written"
    await connection.close()


async def test_roles(postgres_server: embedded.Server, database_url: str) -> None:
    """Edge case 37: a serving role with too many rights and a superuser URL are found."""
    connection = await connect(database_url)
    assert (await checks.check_roles(connection, Logins(database_url))).status == "ok"
    await connection.close()
    for statement, told in (
        ("alter role hlas_app superuser", "may bypass"),
        ("alter role hlas_tenant_admin bypassrls", "may bypass"),
        ("alter table messages owner to hlas_app", "owns tables"),
        ("grant hlas_operator to hlas_app", "is a member of another role"),
        ("alter function resolve_origin owner to hlas_owner", "belongs to hlas_owner instead of"),
        ("alter function knowledge_fold security definer", "is not of Hlas"),
        ("drop function claim_domain() cascade", "missing functions: claim_domain"),
    ):
        async with superuser(postgres_server, database_url) as mighty:
            assert (await checks.check_roles(mighty, Logins(database_url))).status == "warn"
            await mighty.execute(statement)
            found = await checks.check_roles(mighty, Logins(database_url))
            assert found.status == "fail"
            assert told in found.found


async def test_durability(database_url: str) -> None:
    """Commits that are not durable are found: on the whole server, and for one user alone."""
    connection = await connect(database_url)
    found = await checks.check_durability(connection)
    assert (found.status, found.found.partition(" ")[0]) == ("fail", "fsync")
    assert "synchronous_commit" not in found.found
    await connection.close()
    loose = await connect(database_url, synchronous_commit="off")
    assert "fsync, synchronous_commit off" in (await checks.check_durability(loose)).found
    await loose.close()


async def test_clock(database_url: str) -> None:
    """A clock that differs from the database's is a warning, or a failure if tokens break."""
    connection = await connect(database_url)
    assert (await checks.check_clock(connection)).status == "ok"
    ahead = await checks.check_clock(connection, lambda: time.time() + 3600)
    assert (ahead.status, "3600 s ahead of the database" in ahead.found) == ("fail", True)
    behind = await checks.check_clock(connection, lambda: time.time() - 15)
    assert (behind.status, "15 s behind the database" in behind.found) == ("warn", True)
    await connection.close()


@pytest.mark.parametrize(
    "secret",
    [
        "a" * 64,
        "0123456789" * 5,
        "changeme-changeme-changeme-changeme-changeme",
        "my-super-Secret-signing-key-of-the-shop-2026",
        "abababababababababababababababababababab",
    ],
)
def test_weak_secrets(database_url: str, secret: str) -> None:
    """Long but guessable secrets are found, also if only the older one of two is weak."""
    weak = make_settings(database_url, widget_session_jwt_secret=secret)
    assert checks.check_secret(weak).status == "fail"
    both = make_settings(database_url, widget_session_jwt_secrets=f"{STRONG},{secret}")
    assert checks.check_secret(both).status == "fail"
    strong = make_settings(database_url, widget_session_jwt_secret=STRONG)
    assert checks.check_secret(strong).status == "ok"


def test_generated_secrets_are_strong() -> None:
    """Generated secrets, and those of openssl or a hex generator, are not reported as weak."""
    for _ in range(300):
        assert not checks.is_weak(secrets.token_urlsafe(48))
        assert not checks.is_weak(secrets.token_hex(32))
        assert not checks.is_weak(secrets.token_urlsafe(24))


def test_secret_file(tmp_path: Path) -> None:
    """A secret file that others can read or that is half a year old is found; no file is fine."""
    settings = Settings(_env_file=None, data_dir=tmp_path)
    assert checks.check_secret(settings).status == "skip"
    assert list(tmp_path.iterdir()) == []
    source = keys.from_settings(settings)
    assert isinstance(source, keys.FileKeys)
    assert checks.check_secret(settings).status == "ok"
    old = time.time() - 200 * 86400
    os.utime(source.path, (old, old))
    found = checks.check_secret(settings)
    assert (found.status, found.found) == ("warn", "it is 200 days old")
    source.path.chmod(0o644)
    assert checks.check_secret(settings).status == "fail"


def test_limits(database_url: str) -> None:
    """Limits that are not enforced or are off are found."""
    assert checks.check_limits(make_settings(database_url)).status == "ok"
    dry = make_settings(database_url, rate_limit_enforce=False)
    assert checks.check_limits(dry).status == "warn"
    off = make_settings(database_url, rate_limit_messages_ip="off")
    assert "RATE_LIMIT_MESSAGES_IP" in checks.check_limits(off).found


def test_disk(tmp_path: Path) -> None:
    """Low disk space is a warning or a failure; a missing directory counts by its parent."""
    for free, status in ((50 * 2**30, "ok"), (2**30, "warn"), (100 * 2**20, "fail")):
        assert checks.check_disk(tmp_path, lambda _, free=free: Free(free)).status == status  # type: ignore[misc]  # bound now
    asked: list[Path] = []

    def usage(path: Path) -> Free:
        asked.append(path)
        return Free(0)

    checks.check_disk(tmp_path / "not" / "yet", usage)
    assert asked == [tmp_path]


def test_small_disk(tmp_path: Path) -> None:
    """The same on a real file system that is nearly full."""
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)]
    if mount is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        assert checks.check_disk(tmp_path).status == "fail"
    finally:
        subprocess.run(["umount", tmp_path], check=True)


async def test_redis(database_url: str) -> None:
    """Redis is reachable, evicts keys, or is unreachable."""
    assert (await checks.check_redis(make_settings(database_url))).status == "skip"
    with run_redis() as server:
        settings = make_settings(database_url, redis_url=server.url)
        assert (await checks.check_redis(settings)).status == "ok"
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        assert (await checks.check_redis(settings)).status == "warn"
        server.kill()
        away = await checks.check_redis(settings)
    assert away.status == "fail"
    assert "does not answer" in away.found


async def test_database_away(settings: Settings) -> None:
    """An unreachable database is the first finding, and the other checks still run."""
    url = "postgresql://nobody@127.0.0.1:1/none"
    found = await checks.examine(settings, url, page="https://shop.example/")
    assert (found[0].name, found[0].status) == ("database", "fail")
    assert of(found, "allowlist").status == "skip"
    assert of(found, "disk").status == "ok"


async def test_healthy(tmp_path: Path) -> None:
    """`hlas serve` as it starts: no problems, exit status 0, and valid JSON."""
    with make_data_dir(find_memory()) as data_dir:
        variables = {"DATA_DIR": str(data_dir)}
        async with serve_process(DATA_DIR=str(data_dir)) as served:
            page = served.url.replace("127.0.0.1", "localhost")
            asked = ("doctor", "--url", served.url, "--page", f"{page}/demo")
            done = await asyncio.to_thread(
                hlas, *asked, "--json", cwd=tmp_path, **environment(**variables)
            )
            shown = await asyncio.to_thread(hlas, *asked, cwd=tmp_path, **environment(**variables))
        assert done.returncode == 0, done.stdout
        found = {one["name"]: one["status"] for one in orjson.loads(done.stdout)}
        # Free disk space depends on the machine, not on the service.
        assert found.pop("disk") in {"ok", "warn"}
        assert found.pop("redis") == "skip"
        assert found.pop("models") == "skip"
        assert found.pop("semantic") == "skip"
        assert set(found.values()) == {"ok"}, done.stdout
        assert len(found) == 14
        assert "a request from here is limited as 127.0.0.1" in shown.stdout


def test_command_on_faults(postgres_server: embedded.Server, tmp_path: Path) -> None:
    """An invalid setting, an unmigrated database or no database: findings, never a traceback."""

    def run(**variables: str) -> tuple[int, dict[str, dict[str, str]]]:
        done = hlas("doctor", "--json", cwd=tmp_path, **environment(**variables))
        assert "Traceback" not in done.stderr
        return done.returncode, {one["name"]: one for one in orjson.loads(done.stdout)}

    status, found = run(WIDGET_SESSION_JWT_SECRET="short")
    assert (status, found["settings"]["status"]) == (1, "fail")
    assert "WIDGET_SESSION_JWT_SECRET" in found["settings"]["found"]
    status, found = run(DATA_DIR=str(tmp_path / "none"))
    assert (status, found["database"]["status"]) == (0, "warn")
    assert str(tmp_path / "none") in found["database"]["found"]
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"
    text = hlas("doctor", cwd=tmp_path, **environment(DATA_DIR=str(tmp_path / "none"))).stdout
    assert text.splitlines()[-1] == (
        "-     not checked: allowlist, address, background, stream, page, cors "
        "(needs --page URL and --url URL)"
    )
    assert text.count("allowlist") == 1
    status, found = run(
        DATABASE_URL=url_of(postgres_server.url, "template1"), WIDGET_SESSION_JWT_SECRET=STRONG
    )
    assert status == 1
    assert found["migrations"]["fix"] == "run `hlas migrate`"
