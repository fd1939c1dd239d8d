"""The files of one database cluster: location, creation, configuration."""

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from hlas import log
from hlas.store.embedded import binaries
from hlas.store.embedded.account import Account, account_for_new_cluster, owner_of
from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.locks import FileLock
from hlas.store.embedded.passwords import Passwords

OWNER = "hlas_owner"
SUPERUSER = "postgres"
DATABASE = "hlas"
# A file with the path of the cluster, for when it cannot be in DATA_DIR.
POINTER = "postgres.path"
# Only the name of the socket: the server never listens on TCP.
PORT = "5432"
# Every Linux has C.UTF-8, macOS rarely does. The locale only classifies characters.
LOCALE = "C.UTF-8" if sys.platform == "linux" else "en_US.UTF-8"
# sun_path holds 107 bytes, and the socket's name takes 14 with its slash; ".lock" is a plain file.
LONGEST_SOCKET_DIRECTORY = 107 - 14

SETTINGS = {
    "listen_addresses": "",
    "port": PORT,
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "wal_buffers": "16MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    # Short statements on few rows: compiling them costs more than it saves.
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "on",
    "log_filename": "postgresql-%a.log",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_truncate_on_rotation": "on",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
    # Details and statements of errors may hold what a visitor wrote.
    "log_error_verbosity": "terse",
    "log_min_error_statement": "panic",
}


@dataclass(frozen=True)
class Cluster:
    home: Path
    account: Account

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def lock_file(self) -> Path:
        return self.home / "postmaster.lock"

    @property
    def log_directory(self) -> Path:
        return self.home / "log"

    @cached_property
    def name(self) -> str:
        """Part of the title of each process; the same for every spelling of DATA_DIR."""
        status = self.home.stat()
        return f"hlas-{status.st_dev:x}-{status.st_ino:x}"

    @property
    def is_initialised(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def check_version(self) -> None:
        found = (self.data / "PG_VERSION").read_text().strip()
        if found != binaries.major_version():
            raise EmbeddedPostgresError(
                f"The database in {self.data} was made by PostgreSQL {found}, this Hlas brings "
                f"{binaries.major_version()}; dump it with version {found} and restore it."
            )

    def initialise(self, passwords: Passwords) -> None:
        """Create the cluster, all or nothing: it is renamed into place when it is complete."""
        new = self.home / "data.new"
        with self._exclusive() as lock:
            shutil.rmtree(new, ignore_errors=True)
            done = self.account.run(
                binaries.binary_for(self.account, "initdb"),
                *("--pgdata", new, "--username", SUPERUSER, "--encoding", "UTF8"),
                *("--locale", LOCALE, "--locale-provider", "builtin"),
                *("--builtin-locale", "C.UTF-8", "--auth", "reject", "--no-instructions"),
                lock=lock,
            )
            if done.returncode:
                raise EmbeddedPostgresError(f"initdb failed: {_last_line(done.stderr)}")
            self.account.write(new / "pg_hba.conf", "local all all scram-sha-256\n")
            self._run_single_user(
                new,
                f"ALTER ROLE {SUPERUSER} PASSWORD '{passwords.superuser}'",
                f"CREATE ROLE {OWNER} LOGIN CREATEROLE PASSWORD '{passwords.owner}'",
                f"CREATE DATABASE {DATABASE} OWNER {OWNER}",
                lock=lock,
            )
            new.rename(self.data)
        log.info("postgres_initialised", path=str(self.data), user=self.account.name)

    def replace_passwords(self, passwords: Passwords) -> None:
        """For a lost password file; whoever can write the files needs no password."""
        with self._exclusive() as lock:
            self._run_single_user(
                self.data,
                f"ALTER ROLE {SUPERUSER} PASSWORD '{passwords.superuser}'",
                f"ALTER ROLE {OWNER} PASSWORD '{passwords.owner}'",
                lock=lock,
            )

    @contextmanager
    def _exclusive(self) -> Iterator[FileLock]:
        """Lock out an initdb that still writes for a second or two after its parent was killed."""
        with FileLock(self.lock_file) as lock:
            if not lock.acquire(wait=60):
                raise EmbeddedPostgresError(f"Another process still works on {self.home}.")
            yield lock

    def _run_single_user(self, data: Path, *statements: str, lock: FileLock) -> None:
        done = self.account.run(
            binaries.binary_for(self.account, "postgres"),
            *("--single", "-D", data, "-c", "exit_on_error=on"),
            # Neither the terminal nor a log file may show a statement: they hold passwords.
            *("-c", "log_min_error_statement=panic", "-c", "logging_collector=off", SUPERUSER),
            stdin="\n".join([*statements, ""]),
            lock=lock,
        )
        if done.returncode:
            raise EmbeddedPostgresError(f"PostgreSQL set-up failed: {_last_line(done.stderr)}")

    def configuration(self, socket_directory: Path, settings: Mapping[str, str]) -> str:
        own = {
            "unix_socket_directories": f'"{socket_directory}"',
            "log_directory": str(self.log_directory),
        }
        # With the version, so that a server with other binaries is not adopted.
        lines = [f"# Written at every start, for binaries {binaries.package_version()}"]
        for key, value in (SETTINGS | own | dict(settings)).items():
            quoted = value.replace("\\", "\\\\").replace("'", "''")
            lines.append(f"{key} = '{quoted}'")
        return "\n".join([*lines, ""])

    def socket_directory(self) -> Path:
        """Private (0700) and short enough for a socket's address."""
        near = self.home / "socket"
        # libpq reads a comma as the start of another host.
        plain = re.fullmatch(r"[\w/.+@ -]*", str(near))
        if plain and len(os.fsencode(near)) <= LONGEST_SOCKET_DIRECTORY:
            if not near.exists():
                self.account.make_directory(near)
            return near
        short = Path("/tmp") / f"{self.name}-{self.account.uid}"  # noqa: S108 - checked below
        try:
            self.account.make_directory(short)
        except FileExistsError:
            status = short.lstat()
            private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
            if not private or status.st_uid != self.account.uid:
                # The name is taken by somebody else: use one that cannot be guessed.
                short = Path(tempfile.mkdtemp(prefix="hlas-", dir="/tmp"))
                os.chown(short, self.account.uid, self.account.gid)
        return short


def locate(data_dir: Path) -> Cluster | None:
    """The cluster of DATA_DIR, when there is one."""
    pointer = data_dir / POINTER
    try:
        home = Path(pointer.read_text().strip())
    except FileNotFoundError:
        home = data_dir / "postgres"
        return Cluster(home, owner_of(home)) if _exists(home) else None
    except OSError as error:
        raise EmbeddedPostgresError(f"Cannot read {pointer}: {error.strerror}.") from error
    if not home.is_dir():
        raise EmbeddedPostgresError(
            f"The database of {data_dir} was kept in {home}, which is missing; "
            f"bring it back, or remove {pointer} to start with an empty one."
        )
    return Cluster(home, owner_of(home))


def _exists(home: Path) -> bool:
    if not home.exists():
        return False
    if os.geteuid() == 0 and home.stat().st_uid == 0 and not any(home.iterdir()):
        # A start was killed between creating the directory and changing its owner.
        home.rmdir()
        return False
    return True


def make_home(data_dir: Path) -> Cluster:
    """A directory for a new cluster: in DATA_DIR, or where an unprivileged user can reach it."""
    account = account_for_new_cluster()
    if account.uid == os.geteuid() or account.can_enter(data_dir):
        cluster = Cluster(data_dir / "postgres", account)
        account.make_directory(cluster.home)
        return cluster
    # The unprivileged user cannot enter DATA_DIR, and we do not loosen its permissions.
    shared = binaries.SYSTEM_DIRECTORY
    try:
        shared.mkdir(mode=0o755, parents=True, exist_ok=True)
        digest = sha256(os.fsencode(data_dir)).hexdigest()[:12]
        home = Path(tempfile.mkdtemp(dir=shared, prefix=f"{digest}-"))
    except OSError as error:
        raise EmbeddedPostgresError(
            f"The user {account.name} cannot enter {data_dir}, and {shared} is not writable: "
            f"{error.strerror}; choose another DATA_DIR."
        ) from error
    os.chown(home, account.uid, account.gid)
    new = data_dir / f"{POINTER}.new"
    new.write_text(f"{home}\n")
    new.rename(data_dir / POINTER)
    log.warning(
        "postgres_relocated", data_dir=str(data_dir), path=str(home), unreachable_for=account.name
    )
    return Cluster(home, account)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no reason given"
