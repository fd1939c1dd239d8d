"""The container's restrictions: an ordinary user without capabilities, a read-only system."""

import asyncio
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from processes import COMMAND

USER = pwd.getpwnam("nobody")
PYTHON = str(Path(sys.base_prefix).resolve())
START_SECONDS = 90
# Only /tmp is writable; the rest runs as nobody without a way to gain rights. If Python is in a
# private home ($2), it is first mounted elsewhere ($3); the container has its own.
SCRIPT = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=1777 tmpfs /tmp
if [ -n "$2" ]; then
    mkdir /tmp/python
    mount --bind "$3" /tmp/python
    mount -t tmpfs -o mode=0755 tmpfs "$2"
    mkdir -p "$3"
    mount --move /tmp/python "$3"
    mount -o remount,bind,ro "$3"
    mount -o remount,bind,ro "$2"
fi
mount -o remount,bind,ro /
if touch /usr/hlas-was-here 2>/dev/null; then echo "the file system is not read-only"; exit 1; fi
exec setpriv --reuid={uid} --regid={gid} --clear-groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all env -i PATH=/usr/bin:/bin HOME=/nonexistent DATA_DIR=/tmp/data LOG_FORMAT=json \
    PYTHONDONTWRITEBYTECODE=1 "$1" serve --port 0 --workers 2
"""
_READY = re.compile(rb"Hlas is ready on (http://\S+)")


def private_home() -> str:
    """The outermost parent directory of Python that an ordinary user may not enter."""
    closed = [path for path in Path(PYTHON).parents if not path.stat().st_mode & stat.S_IXOTH]
    return str(closed[-1]) if closed else ""


def require_means() -> None:
    for program in ("unshare", "setpriv", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    trying = "mount --make-rprivate / && mount -o remount,bind,ro /"
    tried = subprocess.run(
        ["unshare", "--mount", "sh", "-c", trying], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"nothing can be made read-only here: {tried.stderr.strip()}")
    reach = ["setpriv", f"--reuid={USER.pw_uid}", "--clear-groups", "test", "-x", str(COMMAND)]
    if subprocess.run(reach, check=False).returncode != 0:
        pytest.skip(f"an ordinary user cannot reach {COMMAND}")


def wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if found := _READY.search(log.read_bytes()):
            return found[1].decode()
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


async def use(url: str) -> None:
    """Everything that writes: a session, a message, a reply, and metrics of two workers."""
    async with httpx.AsyncClient(base_url=url, timeout=20) as client:
        origin = {"Origin": "http://localhost:3000"}
        opened = (await client.post("/widget/session", headers=origin)).json()
        headers = {**origin, "Authorization": f"Bearer {opened['token']}"}
        sent = await client.post("/widget/messages", headers=headers, json={"text": "hello"})
        assert sent.status_code == 200, sent.text
        replied = await client.post("/widget/messages/assistant", headers=headers)
        assert replied.status_code == 200, replied.text
        assert "hlas_messages_total" in (await client.get("/metrics")).text


@pytest.mark.soak
async def test_read_only() -> None:
    """It starts with its embedded database, serves and stops, without rights."""
    require_means()
    with tempfile.TemporaryDirectory(prefix="hlas-read-only-") as name:
        log = Path(name) / "log"
        script = SCRIPT.format(uid=USER.pw_uid, gid=USER.pw_gid)
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", script, "sh", COMMAND, private_home(), PYTHON],
                cwd="/",
                stdout=output,
                stderr=output,
            )
        try:
            url = await asyncio.to_thread(wait_until_ready, process, log)
            status = Path(f"/proc/{process.pid}/status").read_text()
            for line in (f"Uid:\t{USER.pw_uid}", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"):
                assert line in status
            await use(url)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 60) == 0
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(60)
