"""Advisory file locks. The kernel releases them when their holder exits for any reason."""

import fcntl
import os
import time
from pathlib import Path
from typing import Self

from hlas.store.embedded.errors import EmbeddedPostgresError


def open_lock_file(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EmbeddedPostgresError(f"Cannot open {path}: {error.strerror}.") from error


def try_lock(descriptor: int, *, exclusive: bool = True) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock exclusively."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(descriptor, exclusive=False)
    finally:
        os.close(descriptor)


class FileLock:
    """An exclusive or a shared lock that says in its file who holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_lock_file(path)

    def acquire(self, *, exclusive: bool = True, wait: float = 0) -> bool:
        deadline = time.monotonic() + wait
        while not try_lock(self._descriptor, exclusive=exclusive):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write_holder(self, text: str) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode(), 0)

    def holder(self) -> str:
        return os.pread(self._descriptor, 100, 0).decode(errors="replace")

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
