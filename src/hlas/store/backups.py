"""Backup and restore of the embedded database, with PostgreSQL's own programs.

A backup is written by pg_dump. A restore takes rows from it and nothing else: the schema is made by
our own migrations, so no statement of the file is ever run.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from hlas.settings import DEFAULT_ROLE_PREFIX
from hlas.store import embedded, isolation, migrations
from hlas.store.db import Queries, connect, log_in
from hlas.store.embedded import EmbeddedPostgresError, Server
from hlas.store.embedded.cluster import DATABASE, OWNER, locate
from hlas.store.logins import OPERATOR, Logins
from hlas.store.migrations import roles

queries = Queries.beside(__file__)

# The restored database is renamed when it is complete; until then the old one stays in use.
STAGING = "hlas_restored"
DROP_STAGING = f"drop database if exists {STAGING} with (force)"
REPLACED = "hlas_replaced"

# An entry of an archive's list: number, two oids, type, owner.
_ENTRY = re.compile(r"^\d+; \d+ \d+ (.+) \S*$", re.MULTILINE)
# Objects without data that operators may add: they are skipped.
_HARMLESS = ("INDEX ", "COMMENT ", "SEQUENCE SET ")
# UNLOGGED: what they hold matters for seconds.
PASSING = frozenset({"TABLE DATA public changes", "TABLE DATA public run_frames"})
_CHUNK_BYTES = 256 * 1024


class BackupError(EmbeddedPostgresError):
    """A backup cannot be created or restored; the message says why."""


@dataclass(frozen=True, slots=True)
class Restored:
    """The contents of a restored database."""

    revision: str
    tenants: int
    conversations: int
    messages: int


def backup(data_dir: Path, file: Path) -> int:
    """Write a consistent snapshot while serving; returns the size of the file in bytes."""
    if locate(data_dir.resolve()) is None:
        raise BackupError(f"There is no embedded database in {data_dir}.")
    new = file.with_name(f"{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        # Created before pg_dump opens it, so that it is never readable by others.
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise BackupError(f"{file} cannot be written: {error.strerror}.") from None
    try:
        with embedded.open_server(data_dir) as server:
            # Only a superuser sees the rows of all tenants: the owner is bound by isolation, too.
            url = _url_of(server.superuser_url, DATABASE)
            _dump(url, "--format=custom", "--no-unlogged-table-data", f"--file={new.resolve()}")
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return file.stat().st_size


def restore(
    data_dir: Path, file: Path, *, prefix: str = DEFAULT_ROLE_PREFIX, secret: str = ""
) -> Restored:
    """Replace the database by a backup; the old one is dropped when the new one is complete."""
    entries = _list(file)
    server = embedded.start(data_dir)
    try:
        return _replace(server, Logins(server.url, prefix, secret), file, entries)
    finally:
        server.stop()


def _replace(server: Server, logins: Logins, file: Path, entries: set[str]) -> Restored:
    staging = logins.at(_url_of(server.url, STAGING))
    asyncio.run(_make_staging(server))
    try:
        asyncio.run(roles.ensure(logins))
        migrations.change_schema(staging, asyncio.run(_read_revision(file)))
        _require_ours(file, entries, _list_schema(staging))
        asyncio.run(_load(staging, file))
        migrations.change_schema(staging)
        asyncio.run(_advance_versions(staging))
        found = asyncio.run(_check(staging))
        asyncio.run(_take_over(server))
    except BaseException:
        # The incomplete copy contains visitors' data.
        asyncio.run(_administer(server, DROP_STAGING))
        raise
    return found


def _list(file: Path) -> set[str]:
    """List the contents of an archive, before anything is changed."""
    if not file.is_file():
        raise BackupError(f"There is no file {file}.")
    done = subprocess.run(  # noqa: S603  # a fixed program; the file's name is one argument
        [embedded.binary("pg_restore"), "--list", file.resolve()],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    entries = _entries(done.stdout)
    if done.returncode or "TABLE DATA public alembic_version" not in entries:
        raise BackupError(f"{file} is not a backup of Hlas.")
    return entries


def _entries(listed: str) -> set[str]:
    return set(_ENTRY.findall(listed))


def _list_schema(staging: Logins) -> set[str]:
    """The objects of our own migrations, as a backup would list them."""
    dumped = _dump(staging.owner_url, "--format=custom", "--schema-only")
    done = subprocess.run(  # noqa: S603  # a fixed program, no shell
        [embedded.binary("pg_restore"), "--list"], input=dumped, capture_output=True, check=True
    )
    ours = _entries(done.stdout.decode())
    tables = (entry.removeprefix("TABLE ") for entry in ours if entry.startswith("TABLE "))
    return ours | {f"TABLE DATA {table}" for table in tables}


def _require_ours(file: Path, entries: set[str], ours: set[str]) -> None:
    foreign = sorted(one for one in entries - ours if not one.startswith(_HARMLESS))
    if foreign:
        raise BackupError(f"{file} contains an object that is not part of Hlas: {foreign[0]}.")
    missing = sorted(one for one in ours - entries - PASSING if one.startswith("TABLE DATA "))
    if missing:
        raise BackupError(f"{file} is not complete: it has no {missing[0]}.")


async def _make_staging(server: Server) -> None:
    await _administer(server, DROP_STAGING, f"create database {STAGING} owner {OWNER}")


async def _read_revision(file: Path) -> str:
    with _rows(file, "alembic_version") as (_, lines):
        revision = b"".join(lines).decode(errors="replace").strip()
    if revision in migrations.revisions():
        return revision
    if revision.isdigit() and revision > migrations.head():
        raise BackupError(
            f"The backup was made by a newer version of Hlas (schema {revision}, this one has "
            f"{migrations.head()}); install that version."
        )
    raise BackupError(f"{file} is not a backup of Hlas: it names no schema that we know.")


async def _load(staging: Logins, file: Path) -> None:
    """Copy every table's rows, as the owner, in one transaction; parents before children."""
    connection = await connect(staging.owner_url)
    try:
        parents = {row["name"]: row["parents"] for row in await connection.fetch(queries.tables)}
        async with connection.transaction():
            for table in TopologicalSorter(parents).static_order():
                # In this transaction only, isolation and triggers do not apply to the owner.
                await connection.execute(
                    f"alter table {table} no force row level security, disable trigger user"
                )
                await _load_table(connection, file, table)
                await connection.execute(
                    f"alter table {table} force row level security, enable trigger user"
                )
        await connection.execute("analyze")
        await roles.admit(connection, staging)
    finally:
        await connection.close()


async def _load_table(connection: asyncpg.Connection, file: Path, table: str) -> None:
    with _rows(file, table) as (columns, lines):
        try:
            await connection.copy_to_table(
                table, columns=columns, source=_in_chunks(lines), format="text"
            )
        except asyncpg.PostgresError as error:
            # Only the message: the details may quote rows.
            raise BackupError(f"The rows of {table} cannot be restored: {error.args[0]}.") from None


async def _in_chunks(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    chunk = bytearray()
    for line in lines:
        chunk += line
        if len(chunk) > _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


@contextmanager
def _rows(file: Path, table: str) -> Iterator[tuple[list[str], Iterator[bytes]]]:
    """The columns and the rows of a table in a backup, in PostgreSQL's text format."""
    options = ("--data-only", "--schema=public", f"--table={table}", "--file=-")
    start = re.compile(rb'COPY public\.%b \(([a-z0-9_", ]+)\) FROM stdin;\n' % table.encode())
    with subprocess.Popen(  # noqa: S603  # a fixed program, no shell
        [embedded.binary("pg_restore"), *options, str(file.resolve())],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        try:
            found = next(filter(None, map(start.fullmatch, process.stdout)), None)
            if found is None:
                raise BackupError(f"{file} is damaged, or no backup of Hlas: no rows of {table}.")
            columns = found[1].decode().replace('"', "").split(", ")
            yield columns, _until_end(process.stdout, f"{file} is cut off or damaged.")
            # Read to the end, so that a failure of the program is detected.
            if not process.stdout.read() or process.wait():
                raise BackupError(f"{file} is cut off or damaged.")
        finally:
            process.kill()


def _until_end(lines: Iterable[bytes], otherwise: str) -> Iterator[bytes]:
    for line in lines:
        if line == b"\\.\n":
            return
        yield line
    raise BackupError(otherwise)


async def _advance_versions(staging: Logins) -> None:
    """Sequences are not restored: workers would not see changes with versions of the past."""
    operator = await log_in(staging, OPERATOR)
    try:
        last = await operator.fetchval(queries.last_version)
    finally:
        await operator.close()
    if last is not None:
        owner = await connect(staging.owner_url)
        try:
            await owner.execute(queries.set_version, last)
        finally:
            await owner.close()


async def _check(staging: Logins) -> Restored:
    """Check isolation and owners before the switch; returns the contents."""
    owner = await connect(staging.owner_url)
    try:
        fault = await roles.find_fault(owner, staging)
        tables = await isolation.list_tables(owner, staging)
    finally:
        await owner.close()
    faults = [fault[0]] if fault else [str(table) for table in tables if table.fault]
    if faults or not tables:
        raise BackupError(f"The restored database is not safe: {', '.join(faults) or 'no tables'}.")
    operator = await log_in(staging, OPERATOR)
    try:
        return Restored(**await operator.fetchrow(queries.counts))
    finally:
        await operator.close()


async def _take_over(server: Server) -> None:
    connection = await asyncpg.connect(server.superuser_url)
    try:
        await connection.execute(f"drop database if exists {REPLACED} with (force)")
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1", DATABASE
        )
        # Both renames in one transaction, so that the database always exists.
        async with connection.transaction():
            await connection.execute(f"alter database {DATABASE} rename to {REPLACED}")
            await connection.execute(f"alter database {STAGING} rename to {DATABASE}")
        await connection.execute(f"drop database {REPLACED} with (force)")
    finally:
        await connection.close()


async def _administer(server: Server, *statements: str) -> None:
    """Run as superuser in the maintenance database, never where rows of a file are."""
    connection = await asyncpg.connect(server.superuser_url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _url_of(server_url: str, database: str) -> str:
    head, _, query = server_url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}?{query}"


def _dump(address: str, *arguments: str) -> bytes:
    """Pass the password in the environment: any user can read a command line."""
    url = urlsplit(address)
    query = parse_qs(url.query)
    environment = {
        "PATH": "/usr/bin:/bin",
        "PGHOST": query["host"][0],
        "PGPORT": query["port"][0],
        "PGUSER": unquote(url.username or ""),
        "PGPASSWORD": unquote(url.password or ""),
        "PGDATABASE": url.path.removeprefix("/"),
    }
    # Lower the priority: compression must not slow down the server.
    nice = [found, "-n", "10"] if (found := shutil.which("nice")) else []
    done = subprocess.run(  # noqa: S603  # a fixed program, no shell
        [*nice, embedded.binary("pg_dump"), "--no-password", *arguments],
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stderr.decode().splitlines() if "error:" in line]
        # Only the first line: the rest may quote rows.
        reason = (lines or [f"status {done.returncode}"])[0].partition("error: ")[2]
        raise BackupError(f"pg_dump failed: {reason or 'it gave no reason'}.")
    return done.stdout
