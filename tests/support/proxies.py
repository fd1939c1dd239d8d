"""Real proxies in front of the service, with the samples of ops/ except ports and certificates."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters import open_directory
from factories import free_port

OPS = Path(__file__).parents[2] / "ops"
START_SECONDS = 60
PROGRAMS = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


@dataclass(frozen=True)
class Proxy:
    name: str
    url: str


def _nginx(directory: Path, port: int, backend: int) -> list[str]:
    sample = (OPS / "nginx" / "hlas.conf").read_text()
    sample = re.sub(r"\n\s+ssl_certificate.*", "", sample)
    sample = sample.replace("listen 80;", f"listen 127.0.0.1:{free_port()};")
    sample = sample.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    sample = sample.replace("127.0.0.1:8000", f"127.0.0.1:{backend}")
    main = directory / "nginx.conf"
    main.write_text(
        f"daemon off; pid {directory}/pid; error_log {directory}/error.log; worker_processes 1;"
        f"events {{}} http {{ access_log off; client_body_temp_path {directory}/body;"
        f" proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/f;"
        f" uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;\n{sample}\n}}"
    )
    return ["nginx", "-e", f"{directory}/error.log", "-c", str(main)]


def _nginx_with_upgrades(directory: Path, port: int, backend: int) -> list[str]:
    """The usual configuration for a host that also serves WebSockets."""
    command = _nginx(directory, port, backend)
    main = directory / "nginx.conf"
    passed = 'proxy_set_header Connection "upgrade"; proxy_set_header Upgrade $http_upgrade;'
    main.write_text(main.read_text().replace('proxy_set_header Connection "";', passed))
    return command


def _caddy(directory: Path, port: int, backend: int) -> list[str]:
    sample = (OPS / "caddy" / "Caddyfile").read_text()
    sample = re.sub(r"^chat\.example\.com ", f"http://:{port} ", sample, flags=re.MULTILINE)
    sample = sample.replace("127.0.0.1:8000", f"127.0.0.1:{backend}")
    main = directory / "Caddyfile"
    main.write_text(f"{{\n\tadmin off\n}}\n{sample}")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(main)]


def _haproxy(directory: Path, port: int, backend: int) -> list[str]:
    """Connections are shared by all visitors (`http-reuse always`), the riskiest setting."""
    sample = (OPS / "haproxy" / "haproxy.cfg").read_text()
    sample = re.sub(r"bind :443 ssl crt \S+", f"bind 127.0.0.1:{port}", sample)
    sample = sample.replace("127.0.0.1:8000", f"127.0.0.1:{backend}")
    sample = sample.replace("http-reuse safe", "http-reuse always")
    main = directory / "haproxy.cfg"
    main.write_text(f"global\n    nbthread 1\n{sample}")
    return ["haproxy", "-q", "-db", "-f", str(main)]


def _haproxy_that_buffers(directory: Path, port: int, backend: int) -> list[str]:
    """It passes an answer on when it has all of it, or after a while."""
    command = _haproxy(directory, port, backend)
    main = directory / "haproxy.cfg"
    waiting = "http-response wait-for-body time 20s\n    http-reuse always"
    main.write_text(main.read_text().replace("http-reuse always", waiting))
    return command


def _nginx_that_compresses(directory: Path, port: int, backend: int) -> list[str]:
    command = _nginx(directory, port, backend)
    main = directory / "nginx.conf"
    compressing = "gzip on; gzip_types *; gzip_proxied any; gzip_min_length 0; access_log off;"
    main.write_text(main.read_text().replace("access_log off;", compressing))
    return command


COMMANDS = {
    "nginx": _nginx,
    "nginx with upgrades": _nginx_with_upgrades,
    "caddy": _caddy,
    "haproxy": _haproxy,
}
# For the doctor to find.
FAULTY = {
    "haproxy that buffers": _haproxy_that_buffers,
    "nginx that compresses": _nginx_that_compresses,
}


@contextmanager
def run_proxy(name: str, backend: int, *, from_outside: bool = False) -> Iterator[Proxy]:
    """A proxy in front of a port. `from_outside`: loopback is not an internal address."""
    with open_directory() as directory:
        port = free_port()
        program, *arguments = {**COMMANDS, **FAULTY}[name](directory, port, backend)
        if from_outside:
            _distrust_loopback(Path(arguments[-1]))
        found = shutil.which(program, path=PROGRAMS)
        if found is None:
            pytest.skip(f"{program} is not installed")
        environment = {"PATH": PROGRAMS, "HOME": str(directory)}
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(
                [found, *arguments], env=environment, stdout=output, stderr=output
            )
        try:
            wait_for_port(process, port, directory / "output")
            yield Proxy(name, f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


def _distrust_loopback(main: Path) -> None:
    text = main.read_text()
    allowed = r"(allow|remote_ip|src) 127\.0\.0\.1\b"
    assert re.search(allowed, text), "the sample has no rule for inside addresses any more"
    main.write_text(re.sub(allowed, r"\1 127.1.2.3", text))


def wait_for_port(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == os.EX_OK:
                return
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, "the proxy does not listen"
        time.sleep(0.02)
