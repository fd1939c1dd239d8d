"""Where the embedding process and the workers of a host meet."""

import hashlib
import os
import stat
from pathlib import Path

# The address of a socket has 108 bytes on Linux and 104 on macOS, with a zero at its end.
LONGEST_SOCKET = 100
SOCKET = "embedding.sock"
LOCK = "embedding.lock"


def make_directory(data_dir: Path) -> Path:
    """A private directory (0700) with a short name; raises OSError if there can be none."""
    directory = locate_directory(data_dir)
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if not is_private(directory):
            raise
    return directory


def locate_directory(data_dir: Path) -> Path:
    data_dir = data_dir.resolve()
    near = data_dir / "embedding"
    if len(os.fsencode(near / SOCKET)) <= LONGEST_SOCKET:
        return near
    name = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"hlas-embedding-{name}-{os.getuid()}"  # noqa: S108  # private, or refused


def find_socket(data_dir: Path) -> Path:
    """The socket, whether somebody listens or not."""
    return locate_directory(data_dir) / SOCKET


def is_private(directory: Path) -> bool:
    """Whether nobody else can put anything there."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_own and stat.S_IMODE(status.st_mode) == 0o700
