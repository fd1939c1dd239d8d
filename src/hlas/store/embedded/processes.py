"""What the system says about processes: /proc on Linux, ps elsewhere."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
HAS_PROC = (PROC / "self" / "cmdline").exists()


class Process(NamedTuple):
    pid: int
    uid: int
    command: str


def find(pid: int) -> Process | None:
    if not HAS_PROC:
        return next(_from_ps("-p", str(pid)), None)
    try:
        uid = (PROC / str(pid)).stat().st_uid
        # Not cwd or exe: without CAP_SYS_PTRACE, usual in containers, root may not read those.
        command = os.fsdecode((PROC / str(pid) / "cmdline").read_bytes())
    except OSError:
        return None
    return Process(pid, uid, command.replace("\0", " ").strip())


def find_all() -> Iterator[Process]:
    if not HAS_PROC:
        yield from _from_ps("-ax")
        return
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (process := find(int(entry.name))):
            yield process


def _from_ps(*selection: str) -> Iterator[Process]:
    command = ["/bin/ps", "-ww", "-o", "pid=,uid=,command=", *selection]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
    for line in done.stdout.splitlines():
        pid, uid, words = line.split(None, 2)
        yield Process(int(pid), int(uid), words.strip())
