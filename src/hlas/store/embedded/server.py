"""A running server: start, attach, watch, stop."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote

from hlas import log
from hlas.store.embedded import postmaster
from hlas.store.embedded.cluster import DATABASE, OWNER, PORT, SUPERUSER, Cluster, locate, make_home
from hlas.store.embedded.errors import EmbeddedPostgresError
from hlas.store.embedded.locks import FileLock
from hlas.store.embedded.passwords import Passwords, make_passwords, read_passwords

START_SECONDS = 120.0
WATCH_SECONDS = 0.2
LOCK_FILE = "postgres.lock"
LONGEST_BACKOFF_SECONDS = 5.0


class Server:
    """A running server. `stop` stops one from `start`, and detaches from an attached one."""

    def __init__(
        self,
        data_dir: Path,
        cluster: Cluster,
        passwords: Passwords,
        socket_directory: Path,
        *,
        lock: FileLock | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.cluster = cluster
        self.socket_directory = socket_directory
        self._passwords = passwords
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        # Re-entrant: a second signal may call stop() inside stop().
        self._changing = threading.RLock()
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def url(self) -> str:
        """URL for the application, as an ordinary role that owns the database."""
        return self._url(OWNER, self._passwords.owner, DATABASE)

    @property
    def superuser_url(self) -> str:
        return self._url(SUPERUSER, self._passwords.superuser, SUPERUSER)

    def _url(self, user: str, password: str, database: str) -> str:
        host = quote(str(self.socket_directory), safe="/")
        return f"postgresql://{user}:{password}@/{database}?host={host}&port={PORT}"

    @property
    def pid(self) -> int | None:
        found = postmaster.read_pid_file(self.cluster)
        return found.pid if found else None

    @property
    def log_file(self) -> Path:
        """The server's output until its own log in `cluster.log_directory` is open."""
        return self.data_dir / "postgres-start.log"

    def launch(self) -> None:
        if not self.socket_directory.exists():
            self.cluster.account.make_directory(self.socket_directory)
        self._process = postmaster.launch(self.cluster, self.socket_directory, self.log_file)
        self._pid = self._process.pid
        try:
            self._wait()
        except BaseException:
            postmaster.shut_down(self.cluster, self._process)
            raise

    def adopt(self) -> bool:
        """Take over a server that another process started; false if it is about to end."""
        deadline = time.monotonic() + postmaster.ORPHAN_SECONDS
        while postmaster.is_running(self.cluster) and time.monotonic() < deadline:
            self._pid = postmaster.postmaster_pid(self.cluster)
            if self._pid is not None:
                try:
                    self._wait()
                except EmbeddedPostgresError:
                    return False
                return True
            time.sleep(postmaster.POLL_SECONDS)
        return False

    def _wait(self) -> None:
        """Wait until the server answers a query."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and not self._stopped.is_set():
            found = postmaster.read_pid_file(self.cluster)
            ready = found is not None and found.pid == self._pid and found.status == "ready"
            if ready and postmaster.is_answering(self.socket_directory, self._passwords):
                return
            if self._is_dead():
                reason = postmaster.read_last_error(self.cluster, self.log_file)
                raise EmbeddedPostgresError(f"PostgreSQL did not start: {reason}.")
            time.sleep(postmaster.POLL_SECONDS)
        raise EmbeddedPostgresError(
            f"PostgreSQL was not ready within {START_SECONDS:.0f} s; "
            f"see {self.cluster.log_directory}."
        )

    def _is_dead(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        return self._pid is None or not postmaster.is_postmaster(self.cluster, self._pid)

    def watch(self) -> None:
        """Start the server again whenever it dies, until `stop`."""
        self._watcher = threading.Thread(target=self._watch, name="postgres-watch", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        backoff = 0.0
        while not self._stopped.wait(backoff or WATCH_SECONDS):
            with self._changing:
                try:
                    self._relaunch()
                except Exception as error:  # noqa: BLE001  # the watcher must not end silently
                    if self._stopped.is_set():
                        return
                    backoff = min(max(2 * backoff, 0.2), LONGEST_BACKOFF_SECONDS)
                    ours = isinstance(error, EmbeddedPostgresError)
                    reason = (
                        str(error) if ours else f"{type(error).__name__} {log.find_place(error)}"
                    )
                    log.warning("postgres_restart_failed", reason=reason, retry_s=backoff)
                else:
                    backoff = 0.0

    def _relaunch(self) -> None:
        if not self._stopped.is_set() and self._is_dead():
            self.launch()
            log.warning("postgres_restarted", pid=self._pid)

    def stop(self) -> None:
        """Stop; returns when no process of the server is left. May be called again."""
        if self._lock is None:
            return
        self._stopped.set()
        with self._changing:
            self._shut_down()
            self._release()
        if self._watcher is not None:
            self._watcher.join()

    def _shut_down(self) -> None:
        postmaster.shut_down(self.cluster, self._process)
        if self.socket_directory.parent != self.cluster.home:
            with contextlib.suppress(OSError):
                self.socket_directory.rmdir()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def share(self) -> None:
        """Let other processes adopt it; the last one to leave stops it."""
        self._release()

    def stop_unless_claimed(self) -> None:
        with FileLock(self.data_dir / LOCK_FILE) as lock:
            if lock.acquire():
                lock.write_holder(f"command {os.getpid()}")
                self._shut_down()


def start(data_dir: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Start the server as the only application on this directory; a second one fails."""
    return _start(data_dir, settings or {}, "serve")


def _start(data_dir: Path, settings: Mapping[str, str], purpose: str) -> Server:
    data_dir = data_dir.resolve()
    _make_data_dir(data_dir)
    lock = _claim(data_dir, purpose)
    try:
        return _start_claimed(data_dir, settings, lock)
    except BaseException:
        lock.close()
        raise


def _make_data_dir(data_dir: Path) -> None:
    try:
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        # Others may pass through to the server's own directory, but not list what is here.
        data_dir.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
    except OSError as error:
        raise EmbeddedPostgresError(f"Cannot make {data_dir}: {error.strerror}.") from error


def _claim(data_dir: Path, purpose: str) -> FileLock:
    lock = FileLock(data_dir / LOCK_FILE)
    deadline = time.monotonic() + START_SECONDS
    while not lock.acquire(wait=0.5):
        holder, _, pid = lock.holder().partition(" ")
        # A command holds it only while it starts or stops the server.
        if holder == "serve" or time.monotonic() > deadline:
            lock.close()
            raise _InUseError(f"Another Hlas (process {pid}) is running on {data_dir}.")
    lock.write_holder(f"{purpose} {os.getpid()}")
    return lock


class _InUseError(EmbeddedPostgresError):
    pass


def _start_claimed(data_dir: Path, settings: Mapping[str, str], lock: FileLock) -> Server:
    cluster = locate(data_dir) or make_home(data_dir)
    passwords = read_passwords(data_dir)
    if not cluster.is_initialised:
        passwords = passwords or make_passwords(data_dir)
        cluster.initialise(passwords)
    cluster.check_version()
    if passwords is None:
        postmaster.shut_down(cluster, None)
        passwords = make_passwords(data_dir)
        cluster.replace_passwords(passwords)
    socket_directory = cluster.socket_directory()
    server = Server(data_dir, cluster, passwords, socket_directory, lock=lock)
    configuration = cluster.configuration(socket_directory, settings)
    file = cluster.data / "postgresql.conf"
    if file.read_text() == configuration and server.adopt():
        log.info("postgres_adopted", pid=server.pid)
        return server
    postmaster.shut_down(cluster, None)
    cluster.account.write(file, configuration)
    server.launch()
    return server


def attach(data_dir: Path) -> Server | None:
    """The server that another process started, or None when none is running."""
    data_dir = data_dir.resolve()
    cluster = locate(data_dir)
    if cluster is None or not postmaster.is_running(cluster):
        return None
    passwords = read_passwords(data_dir)
    found = postmaster.read_pid_file(cluster)
    if passwords is None or found is None:
        return None
    server = Server(data_dir, cluster, passwords, found.socket_directory)
    return server if server.adopt() else None


@contextlib.contextmanager
def open_server(data_dir: Path) -> Iterator[Server]:
    """The running server, or one started for the time of the block; the last user stops it."""
    data_dir = data_dir.resolve()
    _make_data_dir(data_dir)
    with FileLock(data_dir / "postgres-users.lock") as users:
        if not users.acquire(exclusive=False, wait=START_SECONDS):
            raise EmbeddedPostgresError(f"Another command is stopping the server of {data_dir}.")
        server = _attach_or_start(data_dir)
        try:
            yield server
        finally:
            if users.acquire():
                server.stop_unless_claimed()


def _attach_or_start(data_dir: Path) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while True:
        server = attach(data_dir)
        if server is not None:
            return server
        try:
            server = _start(data_dir, {}, "command")
        except _InUseError:
            # `serve` is just starting: wait for its server.
            if time.monotonic() > deadline:
                raise
            continue
        server.share()
        return server
