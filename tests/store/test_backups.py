"""Backup and restore of an embedded database.

Fails with these defects planted: the dump made as the owner, who is bound by isolation;
roles not created before the restore; a restore that continues after errors.
"""

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from archives import fingerprint, furnish
from clusters import cluster_of, find_memory, is_gone, make_data_dir, open_directory, query
from hlas.knowledge import entries
from hlas.knowledge.entries import Entry
from hlas.knowledge.ranking.library import Library
from hlas.store import backups, embedded, migrations
from hlas.store.backups import BackupError, Restored
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins
from hlas.store.migrations.roles import PURPOSE
from hlas.tenants import tenants
from processes import environment, hlas


@pytest.fixture(scope="module")
def furnished() -> Iterator[tuple[Path, Path]]:
    """A DATA_DIR with 5 000 messages, and its backup."""
    with make_data_dir(find_memory()) as data_dir:
        asyncio.run(furnish(data_dir, 5000))
        file = data_dir.parent / "hlas.backup"
        assert backups.backup(data_dir, file) > 10_000
        yield data_dir, file


def test_on_another_machine(furnished: tuple[Path, Path]) -> None:
    """Every row, right, policy and owner of the original, restored into an empty directory."""
    data_dir, file = furnished
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with open_directory(find_memory()) as directory:
        found = backups.restore(directory / "hlas", file)
        assert found == Restored(
            revision=migrations.head(), tenants=1, conversations=200, messages=5000
        )
        original = fingerprint(data_dir)
        assert original["messages"].startswith("5000 ")
        assert fingerprint(directory / "hlas") == original
        assert not embedded.attach(directory / "hlas")


def test_in_place(furnished: tuple[Path, Path]) -> None:
    """A restore in place undoes later additions and deletions, and the database is writable."""
    data_dir, file = furnished
    before = fingerprint(data_dir)
    with embedded.open_server(data_dir) as server:
        url = backups._url_of(server.superuser_url, "hlas")
        query(url, "delete from messages where seq > 3; update tenants set name = 'Other'")
    assert fingerprint(data_dir) != before
    backups.restore(data_dir, file)
    assert fingerprint(data_dir) == before
    asyncio.run(require_writable(data_dir))


def test_knowledge_changes_after_a_restore(furnished: tuple[Path, Path]) -> None:
    """A worker that has read the restored knowledge also reads what is added to it then."""
    _, file = furnished
    with open_directory(find_memory()) as directory:
        backups.restore(directory / "hlas", file)
        asyncio.run(require_found(directory / "hlas"))


async def require_found(data_dir: Path) -> None:
    with embedded.open_server(data_dir) as server:
        operators = await Database.open(Logins(server.url), OPERATOR)
        [tenant, *_] = await tenants.list_tenants(operators)
        library = Library()
        assert len(await library.open(operators, str(tenant.id))) == 3
        await entries.add(operators, tenant.id, Entry("Where are you?", "Here."))
        index = await library.open(operators, str(tenant.id))
        assert index.search("Where are you?", "en")[0].answer == "Here."
        await operators.close()


async def require_writable(data_dir: Path) -> None:
    """The restored database accepts changes by the operators' role."""
    with embedded.open_server(data_dir) as server:
        operators = await Database.open(Logins(server.url), OPERATOR)
        await tenants.add(operators, "New", "new", ["new.example"])
        await tenants.remove(operators, "new")
        await operators.close()


def test_bad_files(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """A missing, foreign, truncated or damaged file is one line, and changes nothing."""
    data_dir, file = furnished
    before = fingerprint(data_dir)
    whole = file.read_bytes()
    bad = {
        "empty": b"",
        "foreign": b"PGDMP is how it starts" * 100,
        "cut": whole[: len(whole) * 2 // 3],
        "damaged": whole[: len(whole) // 2] + b"\0" * 2000 + whole[len(whole) // 2 + 2000 :],
    }
    with pytest.raises(BackupError, match="no file"):
        backups.restore(data_dir, tmp_path / "missing")
    for name, content in bad.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BackupError):
            backups.restore(data_dir, path)
    assert fingerprint(data_dir) == before


def test_newer_schema(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """A backup of a newer version is refused, and the database is unchanged."""
    data_dir, _ = furnished
    with embedded.open_server(data_dir) as server:
        url = backups._url_of(server.superuser_url, "hlas")
        query(url, "update alembic_version set version_num = '9999'")
        newer = tmp_path / "newer"
        backups.backup(data_dir, newer)
        query(url, f"update alembic_version set version_num = '{migrations.head()}'")
    before = fingerprint(data_dir)
    with pytest.raises(BackupError, match="newer version"):
        backups.restore(data_dir, newer)
    assert fingerprint(data_dir) == before


def test_while_serving(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """A backup works while the server runs; a restore is refused."""
    data_dir, file = furnished
    server = embedded.start(data_dir)
    try:
        assert backups.backup(data_dir, tmp_path / "live") > 10_000
        with pytest.raises(embedded.EmbeddedPostgresError, match="is running on"):
            backups.restore(data_dir, file)
    finally:
        server.stop()
    assert is_gone(server)


def test_no_database(tmp_path: Path) -> None:
    """Without a database a backup fails in one line, and creates none."""
    with pytest.raises(BackupError, match="no embedded database"):
        backups.backup(tmp_path / "none", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_commands(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """The commands print what they found; they refuse a server that is not embedded."""
    data_dir, _ = furnished
    variables: dict[str, Any] = environment(DATA_DIR=str(data_dir))
    file = str(tmp_path / "b")
    made = hlas("backup", file, "--json", cwd=tmp_path, **variables)
    assert made.returncode == 0, made.stderr
    assert orjson.loads(made.stdout)["bytes"] == Path(file).stat().st_size
    asked = hlas("restore", file, cwd=tmp_path, **variables)
    assert asked.returncode != 0
    assert "--yes" in asked.stderr
    done = hlas("restore", file, "--yes", "--json", cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["messages"] == 5000
    for command in (("backup", file), ("restore", file, "--yes")):
        refused = hlas(*command, cwd=tmp_path, **environment("postgresql://u@h/d"))
        assert refused.returncode != 0
        assert "DATABASE_URL" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    missing = hlas("backup", "/nowhere/b", cwd=tmp_path, **variables)
    assert "/nowhere/b cannot be written" in missing.stderr


def test_left_over_staging(furnished: tuple[Path, Path]) -> None:
    """A killed restore affects neither the next start nor the next restore."""
    data_dir, file = furnished
    with embedded.open_server(data_dir) as server:
        copy = f"create database {backups.STAGING} template hlas owner hlas_owner"
        query(server.superuser_url, copy)
        # As after an upgrade to a version that changes a setting of a role.
        query(server.superuser_url, "alter role hlas_app reset all")
        migrations.upgrade(Logins(server.url))
    backups.restore(data_dir, file)
    assert cluster_of(data_dir).is_initialised
    with embedded.open_server(data_dir) as server:
        names = query(server.superuser_url, "select datname from pg_database order by 1")
    assert names.split() == ["hlas", "postgres", "template0", "template1"]


def test_older_schema(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """A backup of an earlier version is migrated to this version's schema, with its rows."""
    data_dir, _ = furnished
    older = tmp_path / "older"
    with embedded.open_server(data_dir) as server:
        migrations.downgrade(Logins(server.url), "0006")
        backups.backup(data_dir, older)
        migrations.upgrade(Logins(server.url))
    found = backups.restore(data_dir, older)
    assert (found.revision, found.messages) == (migrations.head(), 5000)


def test_rows_from_before_a_bound(furnished: tuple[Path, Path], tmp_path: Path) -> None:
    """Edge case 51: an entry with more keywords than allowed today is restored unchanged."""
    data_dir, file = furnished
    older = tmp_path / "older"
    with embedded.open_server(data_dir) as server:
        url = backups._url_of(server.superuser_url, "hlas")
        query(
            url,
            "insert into knowledge (tenant_id, id, position, question, answer, keywords)"
            " select id, gen_random_uuid(), 1, 'q', 'a',"
            " array(select repeat('k', 200) from generate_series(1, 60)) from tenants",
        )
        backups.backup(data_dir, older)
    before = fingerprint(data_dir)
    backups.restore(data_dir, older)
    assert fingerprint(data_dir) == before
    backups.restore(data_dir, file)


def test_another_prefix(furnished: tuple[Path, Path]) -> None:
    """The rows of one installation can be restored with another role prefix."""
    _, file = furnished
    with open_directory(find_memory()) as directory:
        backups.restore(directory / "hlas", file, prefix="shop")
        with embedded.open_server(directory / "hlas") as server:
            url = backups._url_of(server.superuser_url, "hlas")
            roles = query(url, "select rolname from pg_roles where rolname ~ '^(hlas|shop)_'")
            owner = query(url, "select proowner::regrole from pg_proc where prosecdef limit 1")
    assert sorted(roles.split()) == sorted(["hlas_owner", *(f"shop_{name}" for name in PURPOSE)])
    assert owner.startswith("shop_")
