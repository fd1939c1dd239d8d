"""A real PgBouncer in front of a test's database."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

import pytest

from clusters import open_directory
from factories import free_port
from hlas.store.logins import LOGIN_ROLES, Logins
from proxies import PROGRAMS, wait_for_port

PoolMode = Literal["session", "transaction"]

# Since this version PgBouncer keeps prepared statements in transaction mode, too.
PREPARED = (1, 21)

SETTINGS = """
[databases]
{name} = host={host} port={server_port} dbname={name}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {directory}/users
pool_mode = {mode}
default_pool_size = 40
"""


@contextmanager
def run_pgbouncer(database_url: str, mode: PoolMode) -> Iterator[str]:
    """The address of the same database through PgBouncer; skips where there is none."""
    program = shutil.which("pgbouncer", path=PROGRAMS)
    if program is None:
        pytest.skip("pgbouncer is not installed")
    if mode == "transaction" and _find_version(program) < PREPARED:
        pytest.skip("this PgBouncer has no prepared statements in transaction mode")
    parts, port = urlsplit(database_url), free_port()
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    with open_directory() as directory:
        values = {
            "name": parts.path.strip("/"),
            "host": query["host"],
            "server_port": query.get("port", 5432),
            "port": port,
            "directory": directory,
            "mode": mode,
        }
        prepared = "max_prepared_statements = 100\n" if mode == "transaction" else ""
        (directory / "settings").write_text(SETTINGS.format(**values) + prepared)
        logins = Logins(database_url)
        users = {one.user: one.password for one in map(logins.login, LOGIN_ROLES)}
        lines = (f'"{user}" "{password}"\n' for user, password in users.items())
        (directory / "users").write_text("".join(lines))
        # As root it refuses to run; the server's user may enter the directory of the socket.
        user = Path(query["host"]).owner()
        unprivileged = ["-u", user] if os.getuid() == 0 else []
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(
                [program, "-q", *unprivileged, str(directory / "settings")],
                stdout=output,
                stderr=output,
            )
        try:
            wait_for_port(process, port, directory / "output")
            yield f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{port}{parts.path}"
        finally:
            process.terminate()
            process.wait()


def _find_version(program: str) -> tuple[int, ...]:
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"(\d+)\.(\d+)", shown.stdout)
    assert found is not None
    return tuple(map(int, found.groups()))
