"""Nothing in a backup file is ever executed.

Fails with `pg_restore` as superuser: every file below was restored, and those that run a
program had run it.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import fingerprint, furnish
from clusters import find_memory, make_data_dir, query
from hlas.store import backups, embedded
from hlas.store.backups import BackupError

COPY = b"COPY public.alembic_version (version_num) FROM stdin;"

# Planted by a superuser in the database from which the file is made.
PLANTED = {
    "a function": "create function planted() returns text language sql as 'select 1::text'",
    "a function in another language": (
        "create function planted() returns text language internal as 'current_database'"
    ),
    "a trigger": (
        "create function planted() returns trigger language plpgsql security definer as"
        " $$begin copy (select 1) to program 'touch {proof}'; return new; end$$;"
        "create trigger planted before insert on messages for each row execute function planted()"
    ),
    "an event trigger": (
        "create function planted() returns event_trigger language plpgsql as"
        " $$begin copy (select 1) to program 'touch {proof}'; end$$;"
        "create event trigger planted on ddl_command_end execute function planted()"
    ),
    "an extension": "create extension file_fdw",
    "a table": "create table planted as select pg_read_file('PG_VERSION') as content",
    "a view": "create view planted as select pg_read_file('PG_VERSION') as content",
    "a rule": "create rule planted as on insert to events do also select 1",
    "a policy": "create policy planted on messages using (true)",
    "a schema": "create schema planted",
}


@pytest.fixture(scope="module")
def furnished() -> Iterator[Path]:
    with make_data_dir(find_memory()) as data_dir:
        asyncio.run(furnish(data_dir, 25))
        yield data_dir


@pytest.fixture
def proof() -> Iterator[Path]:
    """A file that exists only if a backup was able to run a program."""
    path = Path("/tmp") / os.urandom(3).hex()
    yield path
    path.unlink(missing_ok=True)


def make(data_dir: Path, file: Path, sql: str) -> None:
    """A backup of the database with this statement in it; the database itself is unchanged."""
    with embedded.open_server(data_dir) as server:
        query(server.superuser_url, "create database kept template hlas")
        query(backups._url_of(server.superuser_url, "hlas"), sql)
        backups.backup(data_dir, file)
        query(server.superuser_url, "drop database hlas with (force)")
        query(server.superuser_url, "alter database kept rename to hlas")
        query(server.superuser_url, "alter database hlas owner to hlas_owner")


def refusal(data_dir: Path, file: Path) -> str:
    """The one line with which a restore fails; nothing of the file is left behind."""
    with pytest.raises(BackupError) as error:
        backups.restore(data_dir, file)
    assert "\n" not in str(error.value)
    with embedded.open_server(data_dir) as server:
        names = query(server.superuser_url, "select datname from pg_database order by 1")
    assert names.split() == ["hlas", "postgres", "template0", "template1"]
    return str(error.value)


def test_planted(furnished: Path, tmp_path: Path, proof: Path) -> None:
    """Foreign objects are refused in one line that names them; the database is unchanged."""
    with embedded.open_server(furnished):
        for name, sql in PLANTED.items():
            make(furnished, tmp_path / name, sql.replace("{proof}", str(proof)))
    before = fingerprint(furnished)
    for name in PLANTED:
        line = refusal(furnished, tmp_path / name)
        assert "contains an object that is not part of Hlas: " in line, name
        assert "planted" in line or "file_fdw" in line, line
    assert not proof.exists()
    assert fingerprint(furnished) == before


def test_statements(furnished: Path, tmp_path: Path, proof: Path) -> None:
    """A statement that replaces one of ours in the file is never executed."""
    whole = tmp_path / "whole"
    backups.backup(furnished, whole)
    content = whole.read_bytes()
    assert content.count(COPY) == 1
    before = fingerprint(furnished)
    for statement in (
        f"copy (select 1) to program 'touch {proof}'",
        "alter system set work_mem='64MB';",
        "alter role hlas_app superuser;",
        "select pg_read_file('PG_VERSION');",
    ):
        file = tmp_path / "crafted"
        file.write_bytes(content.replace(COPY, statement.encode().ljust(len(COPY))))
        assert refusal(furnished, file).endswith("no rows of alembic_version."), statement
    assert not proof.exists()
    assert fingerprint(furnished) == before
    with embedded.open_server(furnished) as server:
        superusers = "select rolname from pg_roles where rolsuper and rolname <> 'postgres'"
        assert query(server.superuser_url, superusers) == ""
        assert query(server.superuser_url, "show work_mem") == "4MB"


def test_own_index(furnished: Path, tmp_path: Path) -> None:
    """An index that an operator added is ignored."""
    file = tmp_path / "indexed"
    make(furnished, file, "create index mine on messages (content)")
    before = fingerprint(furnished)
    assert backups.restore(furnished, file).messages == 25
    assert fingerprint(furnished) == before


def test_incomplete(furnished: Path, tmp_path: Path) -> None:
    """A file without the rows of a table is refused, because they would be lost."""
    file = tmp_path / "incomplete"
    with embedded.open_server(furnished) as server:
        url = backups._url_of(server.superuser_url, "hlas")
        backups._dump(url, "--format=custom", "--exclude-table-data=events", f"--file={file}")
    assert refusal(furnished, file).endswith("it has no TABLE DATA public events.")
