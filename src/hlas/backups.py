"""Backup and restore of the embedded database, with PostgreSQL's own programs."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from hlas import migrations, postgres
from hlas.logins import Logins
from hlas.migrations import roles
from hlas.postgres import EmbeddedPostgresError, Server
from hlas.postgres.cluster import DATABASE, OWNER, locate

# The restored database gets its name when it is complete; until then the old one is the database.
STAGING = "hlas_restored"
REPLACED = "hlas_replaced"

COUNTS = (
    "select (select version_num from alembic_version) as revision,"
    " (select count(*) from tenants) as tenants,"
    " (select count(*) from conversations) as conversations,"
    " (select count(*) from messages) as messages"
)


class BackupError(EmbeddedPostgresError):
    """A backup cannot be made or used; the message says why."""


def backup(data_dir: Path, file: Path) -> int:
    """Write one consistent state, while visitors go on; the size of the file in bytes."""
    if locate(data_dir.resolve()) is None:
        raise BackupError(f"There is no embedded database in {data_dir}.")
    new = file.with_name(f"{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        # Made before pg_dump opens it, so that nobody else can read it for a moment.
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with postgres.running(data_dir) as server:
            # Only a superuser sees the rows of all tenants: the owner is bound by isolation, too.
            _run(server, DATABASE, "pg_dump", "--format=custom", f"--file={new.resolve()}")
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return file.stat().st_size


def restore(data_dir: Path, file: Path) -> dict[str, Any]:
    """Put a backup in the place of the database; what was there is gone only when it stands."""
    _check(file)
    server = postgres.start(data_dir)
    try:
        asyncio.run(_make_staging(server))
        _run(
            server,
            STAGING,
            "pg_restore",
            *("--exit-on-error", "--single-transaction", f"--dbname={STAGING}"),
            str(file.resolve()),
        )
        url = _url_of(server.url, STAGING)
        asyncio.run(_require_known_revision(url))
        migrations.change_schema(Logins(url))
        return asyncio.run(_take_over(server))
    finally:
        server.stop()


def _check(file: Path) -> None:
    """Before anything is touched: a file of ours, readable from its start."""
    if not file.is_file():
        raise BackupError(f"There is no file {file}.")
    listed = subprocess.run(  # noqa: S603  # a fixed program; the file's name is one argument
        [postgres.binary("pg_restore"), "--list", file.resolve()],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode or " TABLE public alembic_version " not in listed.stdout:
        raise BackupError(f"{file} is not a backup of Hlas.")


async def _make_staging(server: Server) -> None:
    # The backup names them, and a new cluster does not have them yet.
    await roles.ensure(Logins(server.url))
    await _administer(
        server,
        f"drop database if exists {STAGING} with (force)",
        f"create database {STAGING} owner {OWNER}",
    )


async def _require_known_revision(url: str) -> None:
    revision = await migrations.current(url)
    if revision is None or revision > migrations.head():
        raise BackupError(
            f"The backup was made by a newer version of Hlas (schema {revision}, this one has "
            f"{migrations.head()}); install that version."
        )


async def _take_over(server: Server) -> dict[str, Any]:
    connection = await asyncpg.connect(_url_of(server.superuser_url, STAGING))
    try:
        found = dict(await connection.fetchrow(COUNTS))
    finally:
        await connection.close()
    connection = await asyncpg.connect(server.superuser_url)
    try:
        await connection.execute(f"drop database if exists {REPLACED} with (force)")
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", DATABASE
        )
        # Both names in one transaction: there is never a moment without the database.
        async with connection.transaction():
            await connection.execute(f"alter database {DATABASE} rename to {REPLACED}")
            await connection.execute(f"alter database {STAGING} rename to {DATABASE}")
        await connection.execute(f"drop database {REPLACED} with (force)")
    finally:
        await connection.close()
    return found


async def _administer(server: Server, *statements: str) -> None:
    connection = await asyncpg.connect(server.superuser_url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _url_of(server_url: str, database: str) -> str:
    head, _, query = server_url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}?{query}"


def _run(server: Server, database: str, program: str, *arguments: str) -> None:
    """The password goes through the environment: everybody may read a command line."""
    url = urlsplit(server.superuser_url)
    query = parse_qs(url.query)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PGHOST": query["host"][0],
        "PGPORT": query["port"][0],
        "PGUSER": unquote(url.username or ""),
        "PGPASSWORD": unquote(url.password or ""),
        "PGDATABASE": database,
    }
    # Compressing can wait: visitors come first.
    nice = [found, "-n", "10"] if (found := shutil.which("nice")) else []
    done = subprocess.run(  # noqa: S603  # a fixed program, no shell
        [*nice, postgres.binary(program), "--no-password", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error:" in line]
        # Only the first line: what follows may quote rows.
        reason = (lines or [f"status {done.returncode}"])[0].partition("error: ")[2]
        raise BackupError(f"{program} failed: {reason or 'it gave no reason'}.")
