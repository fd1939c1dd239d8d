"""The embedded PostgreSQL in normal operation: start, use, attach, stop."""

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import psutil
import pytest

import clusters
from hlas.store import embedded
from hlas.store.embedded import EmbeddedPostgresError, postmaster

COMMAND = """
import sys
from pathlib import Path
from hlas.store import embedded
with embedded.open_server(Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[embedded.Server]:
    """One server for the tests that only read."""
    with clusters.make_data_dir() as path:
        server = embedded.start(path)
        yield server
        server.stop()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_start_makes_a_working_cluster() -> None:
    """A missing directory becomes a database, and the second start finds its data."""
    with clusters.open_directory() as directory:
        data_dir = directory / "not" / "there" / "yet"
        server = embedded.start(data_dir)
        clusters.query(server.url, "CREATE TABLE kept AS SELECT 42 AS answer")
        server.stop()
        assert clusters.is_gone(server)
        server = embedded.start(data_dir)
        assert clusters.query(server.url, "SELECT answer FROM kept") == "42"
        server.stop()


def test_owner_is_an_ordinary_role(shared: embedded.Server) -> None:
    """The application's role owns the database and may create roles, and is not a superuser."""
    row = clusters.query(
        shared.url,
        "SELECT rolsuper, rolcreaterole, rolbypassrls, rolreplication, rolcreatedb,"
        " pg_get_userbyid(datdba) = current_user"
        " FROM pg_roles, pg_database WHERE rolname = current_user AND datname = 'hlas'",
    )
    assert row == "f|t|f|f|f|t"
    assert clusters.query(shared.superuser_url, "SHOW is_superuser") == "on"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("listen_addresses", ""),
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("jit", "off"),
        ("data_checksums", "on"),
    ],
)
def test_settings(shared: embedded.Server, setting: str, value: str) -> None:
    """Commits are durable, nothing listens on the network, time zone and locale are neutral."""
    assert clusters.query(shared.url, f"SHOW {setting}") == value


def test_czech_text(shared: embedded.Server) -> None:
    """Non-ASCII letters are letters: for case, for trigrams and for the text parser."""
    row = clusters.query(
        shared.url,
        "CREATE EXTENSION pg_trgm; SELECT lower('ŽLUŤOUČKÝ'), show_trgm('řeč')::text <> '{}',"
        " to_tsvector('simple', 'Příliš kůň')",
    )
    assert row == "žluťoučký|t|'kůň':2 'příliš':1"


def test_no_process_listens_on_the_network(shared: embedded.Server) -> None:
    """The server accepts connections only on its private socket."""
    examined = 0
    for pid in postmaster.members(shared.cluster):
        # A backend or an autovacuum worker may have exited in the meantime.
        with suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).net_connections(kind="inet") == []
            examined += 1
    assert examined > 3


def test_terminal_signals_do_not_reach_the_server(shared: embedded.Server) -> None:
    """Ctrl-C reaches only the application, which stops the server after its requests."""
    assert shared.pid is not None
    assert os.getsid(shared.pid) == shared.pid


@pytest.mark.parametrize("role", ["hlas_owner", "postgres"])
async def test_password_is_required(shared: embedded.Server, role: str) -> None:
    """Every role needs its password on the socket, including the superuser."""
    for password in ("wrong", ""):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                host=str(shared.socket_directory), user=role, password=password, database="hlas"
            )


def test_files_are_private(shared: embedded.Server) -> None:
    """Other users can neither read passwords or data nor reach the socket."""
    assert mode(shared.data_dir / "postgres-passwords.json") == 0o600
    for path in (shared.cluster.home, shared.cluster.data, shared.socket_directory):
        assert mode(path) == 0o700
        assert path.stat().st_uid == shared.cluster.account.uid


async def test_environment_of_the_caller_does_not_matter(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PG* variables of a developer's shell affect neither the start nor a connection."""
    for name in ("PGPORT", "PGHOST", "PGDATA", "PGUSER", "PGDATABASE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PGOPTIONS", "-c nonsense=1")
    server = embedded.start(data_dir)
    connection = await asyncpg.connect(server.url)
    assert await connection.fetchval("SELECT current_user") == "hlas_owner"
    await connection.close()
    server.stop()


def test_log_holds_no_values(shared: embedded.Server) -> None:
    """Edge case 41: details and statements of errors, which may hold a message, are not logged."""
    marker = "visitor-wrote-this"
    clusters.query(shared.url, "CREATE TABLE single (text text UNIQUE)")
    for _ in range(2):
        done = clusters.psql(shared.url, f"INSERT INTO single VALUES ('{marker}')")
    assert marker in done.stderr
    # The collector writes an error and its details together, but after the client reads it.
    log = ""
    while "duplicate key value" not in log:
        time.sleep(0.02)
        log = "".join(path.read_text() for path in shared.cluster.log_directory.iterdir())
    assert marker not in log


def test_attach(data_dir: Path) -> None:
    """A command finds the server of another process, and leaves it running."""
    assert embedded.attach(data_dir) is None
    with clusters.application(data_dir) as process:
        server = embedded.attach(data_dir)
        assert server is not None
        assert clusters.query(server.url, "SELECT current_database()") == "hlas"
        server.stop()
        assert clusters.query(server.url, "SELECT 1") == "1"
        process.terminate()
        assert process.wait(60) == 0
    assert embedded.attach(data_dir) is None


def test_attach_without_a_cluster(tmp_path: Path) -> None:
    """Attaching creates nothing."""
    assert embedded.attach(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_running_starts_and_stops(data_dir: Path) -> None:
    """Without a server a command starts one and stops it."""
    with embedded.open_server(data_dir) as server:
        assert clusters.query(server.url, "SELECT 1") == "1"
    assert clusters.is_gone(server)


def test_running_uses_the_server_of_serve(data_dir: Path) -> None:
    """A command uses a running server and leaves it running."""
    server = embedded.start(data_dir)
    with embedded.open_server(data_dir) as same:
        assert same.pid == server.pid
    assert clusters.query(server.url, "SELECT 1") == "1"
    server.stop()
    assert clusters.is_gone(server)


def test_last_command_stops_the_server(data_dir: Path) -> None:
    """The first of two commands to finish does not stop the server that the other uses."""
    with embedded.open_server(data_dir) as first:
        other = clusters.python(COMMAND, data_dir, stdin=-1)
        with other:
            assert other.stdout is not None
            assert int(other.stdout.readline()) == first.pid
            with embedded.open_server(data_dir):
                pass
            assert clusters.query(first.url, "SELECT 1") == "1"
            other.communicate("\n", timeout=60)
        assert other.returncode == 0
        assert clusters.query(first.url, "SELECT 1") == "1"
    assert clusters.is_gone(first)


def test_serve_adopts_the_server_of_a_command(data_dir: Path) -> None:
    """`serve` can start while a command runs; the command then leaves the server to it."""
    with clusters.python(COMMAND, data_dir, stdin=-1) as command:
        assert command.stdout is not None
        pid = int(command.stdout.readline())
        server = embedded.start(data_dir)
        assert server.pid == pid
        command.communicate("\n", timeout=60)
    assert clusters.query(server.url, "SELECT 1") == "1"
    server.stop()
    assert clusters.is_gone(server)


def test_second_serve_is_refused(data_dir: Path) -> None:
    """A second application on a directory gets one line that names the first."""
    with clusters.application(data_dir) as process:
        with pytest.raises(EmbeddedPostgresError) as caught:
            embedded.start(data_dir)
        assert f"process {process.pid}" in str(caught.value)
        assert "\n" not in str(caught.value)
        server = embedded.attach(data_dir)
        assert server is not None
        assert clusters.query(server.url, "SELECT 1") == "1"


def test_two_first_starts_at_once() -> None:
    """A race for an empty directory has one winner, whose server works."""
    with clusters.open_directory() as directory:
        data_dir = directory / "hlas"
        both = [clusters.python(clusters.APPLICATION, data_dir) for _ in range(2)]
        try:
            while all(process.poll() is None for process in both):
                time.sleep(0.02)
            both.sort(key=lambda process: process.poll() is None)
            loser, winner = both
            assert "is running on" in loser.communicate()[1]
            assert winner.stdout is not None
            assert int(winner.stdout.readline()) > 0
            winner.terminate()
            assert winner.wait(60) == 0
        finally:
            for process in both:
                process.kill()
                process.communicate()


def test_sigterm_stops_everything(data_dir: Path) -> None:
    """Edge case 44: SIGTERM of the application stops its server completely."""
    with clusters.application(data_dir) as process:
        server = embedded.attach(data_dir)
        assert server is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert clusters.is_gone(server)
    control = server.cluster.data / "postmaster.pid"
    assert not control.exists()


@contextmanager
def move(data_dir: Path, *names: str) -> Iterator[Path]:
    """The cluster temporarily under another path."""
    target = data_dir.parent.joinpath(*names)
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    data_dir.rename(target)
    try:
        yield target
    finally:
        clusters.end(target)
        target.rename(data_dir)


def test_long_data_path(data_dir: Path) -> None:
    """DATA_DIR may be longer than the 107 bytes of a socket's address."""
    with move(data_dir, "long-" * 20, "longer" * 20) as path:
        server = embedded.start(path)
        assert clusters.query(server.url, "SELECT 1") == "1"
        assert mode(server.socket_directory) == 0o700
        with embedded.open_server(path) as attached:
            assert attached.url == server.url
        server.stop()
        assert not server.socket_directory.exists()


def test_taken_name_of_a_short_socket_directory(data_dir: Path) -> None:
    """Another user's directory is not used, even if it has the expected name."""
    with move(data_dir, "long-" * 20) as path:
        first = embedded.start(path)
        first.stop()
        first.socket_directory.mkdir(mode=0o755)
        try:
            second = embedded.start(path)
            assert second.socket_directory != first.socket_directory
            assert mode(second.socket_directory) == 0o700
            assert clusters.query(second.url, "SELECT 1") == "1"
            second.stop()
        finally:
            first.socket_directory.rmdir()


def test_path_with_odd_characters(data_dir: Path) -> None:
    """Spaces, quotes, commas and non-ASCII letters in the path work."""
    with move(data_dir, 'it\'s a, "kůň" & 100%?#') as path:
        server = embedded.start(path)
        assert clusters.query(server.url, "SELECT 1") == "1"
        server.stop()


def test_symbolic_link_is_the_same_directory(data_dir: Path) -> None:
    """Another spelling of the path finds the same server."""
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)
    server = embedded.start(data_dir)
    with pytest.raises(EmbeddedPostgresError, match="is running on"):
        embedded.start(link)
    attached = embedded.attach(link)
    assert attached is not None
    assert attached.pid == server.pid
    server.stop()


def test_other_major_version(data_dir: Path) -> None:
    """Data of another major version is refused in one sentence, and not changed."""
    file = data_dir / "postgres" / "data" / "PG_VERSION"
    file.write_text("17\n")
    try:
        with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 17.*brings 18"):
            embedded.start(data_dir)
        assert file.read_text() == "17\n"
    finally:
        file.write_text("18\n")


def test_lost_passwords(data_dir: Path) -> None:
    """If the password file is lost, new passwords are set for the same data."""
    server = embedded.start(data_dir)
    clusters.query(server.url, "CREATE TABLE kept ()")
    server.stop()
    (data_dir / "postgres-passwords.json").unlink()
    again = embedded.start(data_dir)
    assert again.url != server.url
    assert clusters.query(again.url, "SELECT count(*) FROM kept") == "0"
    assert clusters.query(again.superuser_url, "SELECT 1") == "1"
    again.stop()


def test_damaged_passwords(data_dir: Path) -> None:
    """A damaged password file is named in the error, with a fix."""
    file = data_dir / "postgres-passwords.json"
    file.write_text("{")
    with pytest.raises(EmbeddedPostgresError, match="is damaged; remove it"):
        embedded.start(data_dir)
    file.unlink()
    embedded.start(data_dir).stop()


def test_failed_start_leaves_nothing(data_dir: Path) -> None:
    """The error has PostgreSQL's reason, and the next start can succeed."""
    with pytest.raises(EmbeddedPostgresError, match=r"PostgreSQL did not start: .*shared_buffers"):
        embedded.start(data_dir, settings={"shared_buffers": "none"})
    server = embedded.start(data_dir, settings={"work_mem": "5MB"})
    assert clusters.query(server.url, "SHOW work_mem") == "5MB"
    server.stop()


def test_stop_twice(data_dir: Path) -> None:
    """A second signal during shutdown has no effect."""
    server = embedded.start(data_dir)
    server.stop()
    server.stop()
    assert clusters.is_gone(server)


def test_data_dir_that_cannot_be_made(tmp_path: Path) -> None:
    """A file in place of DATA_DIR is an error of one sentence, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match="Cannot make"):
        embedded.start(tmp_path / "file" / "hlas")


def test_binary() -> None:
    """Programs are found by name; an unknown name is an error of one sentence."""
    assert os.access(embedded.binary("pg_dump"), os.X_OK)
    with pytest.raises(EmbeddedPostgresError, match="no program nonsense"):
        embedded.binary("nonsense")
