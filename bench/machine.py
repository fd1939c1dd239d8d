"""What this machine is, how fast it syncs, and how much processor time processes have used."""

import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

PAGE = b"\0" * 8192
SYNCS = 400


@dataclass(frozen=True)
class Sync:
    """Seconds that a page takes to the disk."""

    median: float
    p99: float


def sync_time(directory: Path) -> Sync:
    """Write a database page and wait for the disk, again and again, as a commit does."""
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        # Room is made first: a commit seldom has to make the log longer.
        os.write(descriptor, PAGE * SYNCS)
        os.fsync(descriptor)
        times = []
        for number in range(SYNCS):
            started = time.perf_counter()
            os.pwrite(descriptor, PAGE, number * len(PAGE))
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - started)
    times.sort()
    return Sync(statistics.median(times), times[int(len(times) * 0.99)])


def processor_seconds(pid: int) -> float:
    """User and system time of a process and all its descendants, ended ones included."""
    total = 0.0
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # its parent has been charged for it
        total += used.user + used.system + used.children_user + used.children_system
    return total


def describe() -> str:
    """One line for the head of the table."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({name}), {memory:.0f} GB, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}"
    )
