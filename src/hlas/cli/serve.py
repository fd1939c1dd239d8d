"""`hlas serve`: the embedded database, the schema, the workers, and the start message."""

import asyncio
import errno
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from pickle import UnpicklingError
from types import FrameType
from typing import Annotated

import typer
from uvicorn import Server
from uvicorn.supervisors import Multiprocess, multiprocess

from hlas import log
from hlas import settings as configuration
from hlas.cli.database import upgrade
from hlas.demo import tenant as demo
from hlas.http import server
from hlas.observe.metrics import share_between_workers
from hlas.settings import ConfigurationError, Settings
from hlas.store import embedded
from hlas.store.logins import Logins
from hlas.store.vault import Vault
from hlas.visitors import keys

START_SECONDS = 120.0


def serve(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="The port to listen on.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=256, help="Worker processes.")
    ] = 1,
) -> None:
    """Migrate the database and serve."""
    settings = configuration.load()
    log.configure(settings.log_level, settings.log_format)
    if not settings.embedded:
        keys.from_settings(settings)
    # uvicorn raises the signal again when it is done; as an exception it lets us clean up.
    signal.signal(signal.SIGTERM, _leave)
    listener = _listen(host, port)
    try:
        with ExitStack() as farewell, _database(settings) as url:
            logins = Logins.from_settings(settings, url)
            upgrade(logins)
            if settings.embedded:
                asyncio.run(demo.ensure(logins))
            # Before the workers start, which would each make a secret.
            keys.from_settings(settings)
            Vault.from_settings(settings)
            _run(settings, url, listener, workers, farewell)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        listener.close()
        log.flush()


def _leave(_: int, __: FrameType | None) -> None:
    sys.exit(0)


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    if settings.database_url:
        yield settings.database_url
        return
    running = embedded.start(settings.data_dir)
    try:
        running.watch()
        yield running.url
    finally:
        running.stop()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} on {host} is in use; stop what uses it, or choose another with "
                "--port (make run PORT=8001)"
            ) from None
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    listener.set_inheritable(True)  # the standard library's own signature
    return listener


class _OneWorker(Server):
    """Prints the start message when it listens."""

    welcome: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.welcome()


class _Worker(multiprocess.Process):
    """Notices a killed process at once; uvicorn's own waits until its health check times out."""

    def _healthcheck(self, timeout: float) -> bool | None:
        try:
            self.parent_conn.send(b"ping")
            wait([self.parent_conn, self.process.sentinel], timeout)
            return bool(self.parent_conn.recv()) if self.parent_conn.poll() else None
        except (OSError, EOFError, UnpicklingError):
            return None


class _SeveralWorkers(Multiprocess):
    """Prints the start message when all workers listen."""

    welcome: Callable[[], None]

    def init_processes(self) -> None:
        super().init_processes()
        if all(one.wait_until_ready(START_SECONDS, self.should_exit) for one in self.processes):
            self.welcome()


def _run(
    settings: Settings, url: str, listener: socket.socket, workers: int, farewell: ExitStack
) -> None:
    welcome = partial(_welcome, settings, listener, workers, farewell)
    if workers == 1:
        from hlas.app import create_app  # noqa: PLC0415  # workers load it themselves

        one = _OneWorker(server.config(create_app(settings, url)))
        one.welcome = welcome
        server.settle()
        one.run(sockets=[listener])
        return
    directory = tempfile.mkdtemp(prefix="hlas-metrics-")
    forget = share_between_workers(Path(directory))
    try:
        config = server.config("hlas.app:from_environment", factory=True, workers=workers)
        multiprocess.Process = _Worker  # type: ignore[misc]  # uvicorn has no option for it
        several = _SeveralWorkers(config, sockets=[listener])
        several.welcome = welcome
        several.run()
    finally:
        forget()
        os.rmdir(directory)  # noqa: PTH106  # the pair of mkdtemp


def _welcome(
    settings: Settings, listener: socket.socket, workers: int, farewell: ExitStack
) -> None:
    """Print what to open and to try; print that Hlas has stopped only if this was printed."""
    host, port = listener.getsockname()[:2]
    base = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    lines = [f"Hlas is ready on {base}"]
    if settings.embedded:
        lines += [
            f"  open      {base}/         the demo page with the widget on it",
            f"            {base}/console  conversations, tenants, numbers",
            f"            {base}/docs     the API",
            "  try       .venv/bin/hlas admin-key add me     a key to sign in to the console",
            "            .venv/bin/hlas tenant add 'My shop' --slug shop --domain shop.example",
            f"  data      {settings.data_dir.resolve()}",
        ]
    if workers > 1 and not settings.redis_url:
        lines.append(
            f"  note      limits are kept in each of the {workers} workers, so together they admit "
            f"up to {workers} times as much; set REDIS_URL to share them"
        )
    lines.append("  stop      Ctrl-C")
    typer.echo("\n".join(lines), err=True)
    farewell.callback(typer.echo, "Hlas has stopped.", err=True)
