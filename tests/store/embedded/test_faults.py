"""The embedded PostgreSQL with killed, hung, stale or foreign processes and files."""

import io
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import clusters
from hlas.store import embedded
from hlas.store.embedded import EmbeddedPostgresError, Server, postmaster
from log_scan import events


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter timeouts; the order of events is the same."""
    monkeypatch.setattr(postmaster, "FAST_SHUTDOWN_SECONDS", 0.5)
    monkeypatch.setattr(postmaster, "ORPHAN_SECONDS", 0.5)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited 60 s in vain"
        time.sleep(0.02)


def pid_of(server: Server) -> int:
    assert server.pid is not None
    return server.pid


def works(server: Server) -> bool:
    return clusters.psql(server.url, "SELECT 1").stdout.strip() == "1"


def backend_of(server: Server, stack: list[subprocess.Popen[bytes]]) -> int:
    """A backend with a client that stays connected."""
    client = subprocess.Popen(
        [embedded.binary("psql"), "-X", "-q", server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    stack.append(client)
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(b"\\pset format unaligned\n\\t\nSELECT pg_backend_pid();\n")
    client.stdin.flush()
    return int(client.stdout.readline())


@pytest.fixture
def clients() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for client in started:
        client.kill()
        client.communicate()


def test_application_killed(data_dir: Path) -> None:
    """Edge case 6: after kill -9 of the application its server is adopted, not started twice."""
    with clusters.application(data_dir) as process:
        orphan = embedded.attach(data_dir)
        assert orphan is not None
        pid = orphan.pid
        clusters.query(orphan.url, "CREATE TABLE acknowledged ()")
        process.kill()
        process.wait()
    server = embedded.start(data_dir)
    assert server.pid == pid
    assert clusters.query(server.url, "SELECT count(*) FROM acknowledged") == "0"
    server.stop()
    assert clusters.is_gone(server)


def test_orphan_with_other_settings_is_replaced(data_dir: Path) -> None:
    """A server is adopted only if its configuration is the current one."""
    with clusters.application(data_dir) as process:
        process.kill()
        process.wait()
    before = embedded.attach(data_dir)
    assert before is not None
    old = before.pid
    server = embedded.start(data_dir, settings={"work_mem": "6MB"})
    assert server.pid != old
    assert clusters.query(server.url, "SHOW work_mem") == "6MB"
    server.stop()


def test_adopted_server_is_watched(data_dir: Path) -> None:
    """The death of an adopted server, which is not our child, is detected too."""
    with clusters.application(data_dir) as process:
        process.kill()
        process.wait()
    server = embedded.start(data_dir)
    server.watch()
    os.kill(pid_of(server), signal.SIGKILL)
    wait_until(lambda: works(server))
    server.stop()
    assert clusters.is_gone(server)


def test_command_after_a_killed_application(data_dir: Path) -> None:
    """A command uses the orphaned server and, as its last user, stops it."""
    with clusters.application(data_dir) as process:
        process.kill()
        process.wait()
    with embedded.open_server(data_dir) as server:
        assert works(server)
    assert clusters.is_gone(server)


def test_server_killed(data_dir: Path, logs: io.BytesIO) -> None:
    """Edge case 5: after kill -9 the server is restarted automatically at the same address, with
    every acknowledged row, and one line is logged.
    """
    server = embedded.start(data_dir)
    server.watch()
    clusters.query(server.url, "CREATE TABLE counted (n int)")
    acknowledged = 0
    for _ in range(3):
        old = pid_of(server)
        clusters.query(server.url, f"INSERT INTO counted VALUES ({acknowledged})")
        acknowledged += 1
        os.kill(old, signal.SIGKILL)
        wait_until(lambda old=old: server.pid != old and works(server))  # type: ignore[misc]  # bound now
        wait_until(lambda count=acknowledged: len(events(logs)) == count)  # type: ignore[misc]  # bound now
    assert clusters.query(server.url, "SELECT count(*) FROM counted") == str(acknowledged)
    server.stop()
    assert [event["event"] for event in events(logs)] == ["postgres_restarted"] * 3
    assert clusters.is_gone(server)


def test_watch_goes_on(data_dir: Path, logs: io.BytesIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error does not end the watch: it is logged and retried."""
    server = embedded.start(data_dir)
    launch = postmaster.launch
    tries: list[Any] = []

    def fail_twice(*arguments: Any) -> Any:
        tries.append(arguments)
        if len(tries) < 3:
            raise OSError("no space left on device")
        return launch(*arguments)

    monkeypatch.setattr(postmaster, "launch", fail_twice)
    server.watch()
    os.kill(pid_of(server), signal.SIGKILL)
    wait_until(lambda: len(tries) == 3 and works(server))
    wait_until(lambda: len(events(logs)) == 3)
    server.stop()
    failed, again, restarted = events(logs)
    assert [failed["event"], again["event"]] == ["postgres_restart_failed"] * 2
    assert failed["reason"].startswith("OSError fail_twice:")
    assert (failed["retry_s"], again["retry_s"]) == (0.2, 0.4)
    assert restarted["event"] == "postgres_restarted"


def test_hung_backend_of_a_killed_server(
    data_dir: Path, clients: list[subprocess.Popen[bytes]], impatient: None
) -> None:
    """A child that survives its killed server is killed before the next start."""
    server = embedded.start(data_dir)
    backend = backend_of(server, clients)
    os.kill(backend, signal.SIGSTOP)
    os.kill(pid_of(server), signal.SIGKILL)
    server.watch()
    wait_until(lambda: works(server))
    assert not psutil.pid_exists(backend) or psutil.Process(backend).status() == "zombie"
    server.stop()


def test_stop_with_a_hung_backend(
    data_dir: Path, clients: list[subprocess.Popen[bytes]], impatient: None
) -> None:
    """A child that ignores signals does not keep the application from stopping."""
    server = embedded.start(data_dir)
    os.kill(backend_of(server, clients), signal.SIGSTOP)
    server.stop()
    assert clusters.is_gone(server)
    server = embedded.start(data_dir)
    assert works(server)
    server.stop()


def test_stop_with_a_hung_server(data_dir: Path, impatient: None) -> None:
    """A postmaster stopped with SIGSTOP is killed too."""
    server = embedded.start(data_dir)
    os.kill(pid_of(server), signal.SIGSTOP)
    server.stop()
    assert clusters.is_gone(server)


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.25, 0.3, 0.4])
def test_stop_while_the_watch_restarts(data_dir: Path, delay: float) -> None:
    """A stop during a restart leaves no process running."""
    server = embedded.start(data_dir)
    server.watch()
    os.kill(pid_of(server), signal.SIGKILL)
    time.sleep(delay)
    server.stop()
    assert clusters.is_gone(server)
    assert not [t for t in threading.enumerate() if t.name == "postgres-watch"]


def test_watch_keeps_trying(data_dir: Path, logs: io.BytesIO) -> None:
    """A failed restart is logged and retried until it succeeds."""
    server = embedded.start(data_dir)
    server.watch()
    conf = server.cluster.data / "postgresql.conf"
    good = conf.read_text()
    server.cluster.account.write(conf, "nonsense\n")
    os.kill(pid_of(server), signal.SIGKILL)
    wait_until(lambda: len(events(logs)) >= 2)
    server.cluster.account.write(conf, good)
    wait_until(lambda: works(server))
    server.stop()
    names = [event["event"] for event in events(logs)]
    assert names == ["postgres_restart_failed"] * (len(names) - 1) + ["postgres_restarted"]
    assert "syntax error" in events(logs)[0]["reason"]


def test_stale_pid_of_a_living_program(data_dir: Path) -> None:
    """Pid files left by a crash that contain the pid of another running program are ignored, and
    that program is not touched.
    """
    server = embedded.start(data_dir)
    pid_file = server.cluster.data / "postmaster.pid"
    lock_file = server.socket_directory / ".s.PGSQL.5432.lock"
    texts = {path: path.read_text() for path in (pid_file, lock_file)}
    old = server.pid
    server.stop()
    foreign = subprocess.Popen(["sleep", "600"], **server.cluster.account.process_options())
    try:
        for path, text in texts.items():
            server.cluster.account.write(path, text.replace(str(old), str(foreign.pid)))
        assert embedded.attach(data_dir) is None
        server = embedded.start(data_dir)
        assert works(server)
        server.stop()
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_copy_of_a_running_directory(data_dir: Path) -> None:
    """A copied DATA_DIR is another cluster, though its pid file names the original's server."""
    server = embedded.start(data_dir)
    copy = data_dir.with_name("copy")
    subprocess.run(["cp", "-a", data_dir, copy], check=True)
    other = embedded.start(copy)
    assert other.pid != server.pid
    assert works(other)
    other.stop()
    assert works(server)
    server.stop()


def test_server_started_by_hand(data_dir: Path) -> None:
    """A server that an administrator started is neither started twice nor stopped."""
    cluster = clusters.cluster_of(data_dir)
    by_hand = subprocess.Popen(
        [embedded.binary("postgres"), "-D", cluster.data],
        stderr=subprocess.DEVNULL,
        **cluster.account.process_options(),
    )
    try:
        wait_until(lambda: getattr(postmaster.read_pid_file(cluster), "status", "") == "ready")
        with pytest.raises(EmbeddedPostgresError, match=f"process {by_hand.pid}.*stop it first"):
            embedded.start(data_dir)
        assert by_hand.poll() is None
    finally:
        by_hand.send_signal(signal.SIGINT)
        by_hand.wait(60)


def test_application_killed_in_its_first_start() -> None:
    """An unfinished cluster is created again; a leftover initdb does not interfere."""
    with clusters.open_directory() as directory:
        data_dir = directory / "hlas"
        with clusters.python(clusters.APPLICATION, data_dir) as process:
            wait_until((data_dir / "postgres" / "data.new" / "global").exists)
            process.kill()
        server = embedded.start(data_dir)
        assert works(server)
        server.stop()
        assert not (server.cluster.home / "data.new").exists()
        assert clusters.is_gone(server)


def test_removed_data_dir() -> None:
    """After `rm -rf` under a running server the same path is a new database, also if the new
    directory gets the inode of the old one.
    """
    with clusters.open_directory() as directory:
        data_dir = directory / "hlas"
        old = embedded.start(data_dir)
        clusters.query(old.url, "CREATE TABLE forgotten ()")
        shutil.rmtree(data_dir)
        new = embedded.start(data_dir)
        assert clusters.query(new.url, "SELECT to_regclass('forgotten') IS NULL") == "t"
        new.stop()
        assert clusters.is_gone(new)
        assert old._process is not None
        old._process.kill()
        old._process.wait()
