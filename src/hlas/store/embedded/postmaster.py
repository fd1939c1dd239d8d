"""The processes of a cluster: find, launch, check and stop them.

Each process of a cluster inherits the descriptor of a locked file. So "the lock is free" means
that the postmaster and all its children are gone, without trusting a process id in a file.
"""

import contextlib
import os
import signal
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hlas.store.embedded import binaries, processes
from hlas.store.embedded.account import ENVIRONMENT
from hlas.store.embedded.cluster import DATABASE, OWNER, PORT, Cluster
from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.locks import is_held, open_lock_file, try_lock
from hlas.store.embedded.passwords import Passwords

FAST_SHUTDOWN_SECONDS = 30.0
ORPHAN_SECONDS = 3.0
KILL_SECONDS = 10.0
POLL_SECONDS = 0.01


class PidFile(NamedTuple):
    pid: int
    socket_directory: Path
    status: str


def read_pid_file(cluster: Cluster) -> PidFile | None:
    try:
        lines = (cluster.data / "postmaster.pid").read_text(errors="replace").splitlines()
        status = lines[7].strip() if len(lines) > 7 else ""
        return PidFile(int(lines[0]), Path(lines[4] if len(lines) > 4 else ""), status)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def is_running(cluster: Cluster) -> bool:
    return is_held(cluster.lock_file)


def is_postmaster(cluster: Cluster, pid: int) -> bool:
    """Check the process as well: the pid file alone proves nothing, because pids are reused."""
    process = processes.find(pid)
    return process is not None and _is_postmaster(cluster, process)


def _is_postmaster(cluster: Cluster, process: processes.Process) -> bool:
    return process.uid == cluster.account.uid and process.command.endswith(
        (f" --cluster_name={cluster.name}", f"postgres -D {cluster.data}")
    )


def postmaster_pid(cluster: Cluster) -> int | None:
    found = read_pid_file(cluster)
    return found.pid if found and is_postmaster(cluster, found.pid) else None


def members(cluster: Cluster) -> list[int]:
    """The postmaster is known by its arguments, its children by their titles."""
    return [
        process.pid
        for process in processes.find_all()
        if _is_postmaster(cluster, process)
        or (
            process.uid == cluster.account.uid
            and process.command.startswith(f"postgres: {cluster.name}:")
        )
    ]


def is_answering(socket_directory: Path, passwords: Passwords) -> bool:
    environment = ENVIRONMENT | {
        "PGHOST": str(socket_directory),
        "PGPORT": PORT,
        "PGUSER": OWNER,
        "PGPASSWORD": passwords.owner,
        "PGCONNECT_TIMEOUT": "5",
    }
    command = [str(binaries.binary("psql")), "-X", "-w", "-qAt", "-c", "SELECT 1", DATABASE]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            command, env=environment, capture_output=True, timeout=15, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and done.stdout.strip() == "1"


def launch(cluster: Cluster, socket_directory: Path, log_file: Path) -> subprocess.Popen[bytes]:
    program = binaries.binary_for(cluster.account, "postgres")
    descriptor = open_lock_file(cluster.lock_file)
    try:
        _take_over(cluster, socket_directory, descriptor)
        with log_file.open("wb") as output:
            return subprocess.Popen(  # noqa: S603 - fixed words
                [program, "-D", cluster.data, f"--cluster_name={cluster.name}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=ENVIRONMENT,
                pass_fds=[descriptor],
                # Ctrl-C in a terminal is for the application, which then stops the server.
                start_new_session=True,
                **cluster.account.process_options(),
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresError(f"PostgreSQL cannot be started: {error}.") from error
    finally:
        os.close(descriptor)


def _take_over(cluster: Cluster, socket_directory: Path, descriptor: int) -> None:
    """Wait for the lock: after a crash children of the old server may still be exiting."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            _kill(cluster)
        time.sleep(POLL_SECONDS)
        if time.monotonic() > deadline + KILL_SECONDS:
            raise _still_in_use(cluster)
    pid = postmaster_pid(cluster)
    if pid is not None:
        raise EmbeddedPostgresError(
            f"A PostgreSQL that Hlas did not start runs on {cluster.data} (process {pid}); "
            "stop it first."
        )
    # The pids in these files may belong to other programs now; PostgreSQL would refuse to start.
    (cluster.data / "postmaster.pid").unlink(missing_ok=True)
    (socket_directory / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
    # A process with our name but without the lock serves a removed directory with the same inode.
    deadline = time.monotonic() + KILL_SECONDS
    while members(cluster) and time.monotonic() < deadline:
        _kill(cluster)
        time.sleep(POLL_SECONDS)


def shut_down(cluster: Cluster, process: subprocess.Popen[bytes] | None) -> None:
    """Stop the server; returns when no process of the cluster is left."""
    # Our servers hold the lock. One that was started by hand does not, and is left alone.
    if process is None and not is_running(cluster):
        return
    for number, timeout in (
        (signal.SIGINT, FAST_SHUTDOWN_SECONDS),
        (signal.SIGQUIT, ORPHAN_SECONDS),
    ):
        # For our own child we know the pid; it may not have written its pid file yet.
        alive = process is not None and process.poll() is None
        pid = process.pid if process and alive else postmaster_pid(cluster)
        if pid is not None:
            cluster.account.signal(number, [pid])
        if _wait_until_gone(cluster, process, timeout if pid is not None else ORPHAN_SECONDS):
            return
    deadline = time.monotonic() + KILL_SECONDS
    while not _wait_until_gone(cluster, process, 0.2):
        if time.monotonic() > deadline:
            raise _still_in_use(cluster)
        _kill(cluster)


def _wait_until_gone(
    cluster: Cluster, process: subprocess.Popen[bytes] | None, timeout: float
) -> bool:
    deadline = time.monotonic() + timeout
    while is_running(cluster):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    if process is not None:
        process.wait()
    return True


def _kill(cluster: Cluster) -> None:
    cluster.account.signal(signal.SIGKILL, members(cluster))


def _still_in_use(cluster: Cluster) -> EmbeddedPostgresError:
    return EmbeddedPostgresError(
        f"The database in {cluster.data} is in use by processes that cannot be ended from here, "
        "perhaps in another container."
    )


def read_last_error(cluster: Cluster, log_file: Path) -> str:
    """Why a server stopped: the last fatal error in its log."""
    logs = sorted(cluster.log_directory.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in (log_file, *logs[-1:]):
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()[-50:]
            for before, line in reversed(list(pairwise(["", *lines]))):
                if "FATAL:  " in line:
                    # "contains errors" is not specific; the line before names the setting.
                    reason = before if "contains errors" in line else line
                    return reason.rpartition(":  ")[2].rstrip(".")
    return f"see {cluster.log_directory}"
