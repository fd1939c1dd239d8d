"""A description of this machine, its disk sync time, and the CPU time of processes."""

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
    """Seconds to sync a page to the disk."""

    median: float
    p99: float


def sync_time(directory: Path) -> Sync:
    """Repeatedly write a database page and wait for the disk, as a commit does."""
    with tempfile.TemporaryFile(dir=directory) as file:
        descriptor = file.fileno()
        # The file is allocated first: a commit rarely has to extend the log.
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
    """User and system time of a process and all its descendants, including exited ones."""
    total = 0.0
    parent = psutil.Process(pid)
    for process in (parent, *parent.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # counted at its parent
        total += used.user + used.system + used.children_user + used.children_system
    return total


def describe() -> str:
    """Describe the machine in one line, for the top of the table."""
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
