"""Which user runs PostgreSQL: the current one, or for root an unprivileged one."""

import os
import pwd
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.locks import FileLock

DEDICATED = "hlas"
# Nothing of the caller's environment (PGDATA, PGOPTIONS, LD_*) may reach the server.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


class ProcessOptions(TypedDict, total=False):
    """Arguments of `subprocess` that set the user of a process."""

    cwd: str
    umask: int
    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int

    @property
    def name(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def process_options(self) -> ProcessOptions:
        options: ProcessOptions = {"cwd": "/", "umask": 0o077}
        if os.geteuid() == 0:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def run(
        self, *command: str | Path, stdin: str = "", lock: FileLock | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The program holds `lock` as well, so it stays locked when only the caller is killed."""
        try:
            return subprocess.run(  # noqa: S603 - fixed programs, no shell words from outside
                command,
                input=stdin,
                capture_output=True,
                text=True,
                check=False,
                env=ENVIRONMENT,
                pass_fds=[lock.fileno()] if lock else [],
                **self.process_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedPostgresError(
                f"Cannot run {command[0]} as the user {self.name}: {error}."
            ) from error

    def can_enter(self, directory: Path) -> bool:
        return self.run("/bin/sh", "-c", 'cd -- "$1"', "sh", directory).returncode == 0

    def can_execute(self, program: Path) -> bool:
        return self.run("/bin/sh", "-c", 'test -x "$1"', "sh", program).returncode == 0

    def write(self, path: Path, text: str) -> None:
        """Written as this user: root follows no link that the unprivileged user planted."""
        script = 'cat >"$1.new" && mv -f -- "$1.new" "$1"'
        done = self.run("/bin/sh", "-c", script, "sh", path, stdin=text)
        if done.returncode:
            raise EmbeddedPostgresError(f"Cannot write {path}: {done.stderr.strip()}.")

    def signal(self, number: signal.Signals, pids: list[int]) -> None:
        """Sent as this user, so that a wrong pid cannot hit another user's process."""
        if pids:
            script = 'kill -"$@" 2>/dev/null'
            self.run("/bin/sh", "-c", script, "sh", str(number.value), *map(str, pids))

    def make_directory(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def owner_of(path: Path) -> Account:
    """The account of an existing cluster; PostgreSQL accepts no other."""
    status = path.lstat()
    if status.st_uid == 0:
        raise EmbeddedPostgresError(
            f"{path} belongs to root, and PostgreSQL refuses to run as root; remove or chown it."
        )
    if os.geteuid() not in (0, status.st_uid):
        owner = Account(status.st_uid, status.st_gid).name
        raise EmbeddedPostgresError(
            f"The database in {path} belongs to the user {owner}; run Hlas as {owner}."
        )
    return Account(status.st_uid, status.st_gid)


def account_for_new_cluster() -> Account:
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:
            raise EmbeddedPostgresError(
                f"The user id {os.geteuid()} has no name in /etc/passwd, and PostgreSQL needs one; "
                "add it, or set DATABASE_URL."
            ) from None
        return Account(os.geteuid(), os.getegid())
    account = _find_account(DEDICATED) or _create_account() or _find_account("nobody")
    if account is None:
        raise EmbeddedPostgresError(
            "PostgreSQL refuses to run as root and there is no other user; "
            "create one named hlas, or set DATABASE_URL."
        )
    return account


def _find_account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid) if entry.pw_uid != 0 else None


def _create_account() -> Account | None:
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return None
    command = [
        useradd,
        "--system",
        "--user-group",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
    ]
    subprocess.run(  # noqa: S603 - fixed words only
        [*command, "--shell", "/usr/sbin/nologin", DEDICATED], capture_output=True, check=False
    )
    return _find_account(DEDICATED)
