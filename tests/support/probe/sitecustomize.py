"""Loaded by every process of a server under soak: on SIGUSR2 it writes its number of tasks.

It is loaded from a directory on PYTHONPATH; the product contains nothing for it. It lowers the
bounds of caches, so that a soak reaches them. `HLAS_PROBE_PLANT` plants the defects that the soak
must detect.
"""

import asyncio
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from hlas.visitors import sessions, tokens

_directory = Path(os.environ["HLAS_PROBE_DIR"])
_planted = os.environ.get("HLAS_PROBE_PLANT", "").split()
_kept: list[Any] = []


def _report(_: int, __: FrameType | None) -> None:
    try:
        count = len(asyncio.all_tasks())
    except RuntimeError:
        count = 0
    staging = _directory / f"{os.getpid()}.new"
    staging.write_text(str(count))
    staging.replace(_directory / f"{os.getpid()}.tasks")


def _leak(kinds: list[str]) -> None:
    if "memory" in kinds:
        _kept.append(os.urandom(1024))
    if "task" in kinds:
        _kept.append(asyncio.get_running_loop().create_task(asyncio.Event().wait()))
    if "file" in kinds:
        _kept.append(Path(os.devnull).open())  # noqa: SIM115  # left open on purpose


def _plant_leak(kinds: list[str]) -> None:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    begin = HttpToolsProtocol.on_message_begin

    def begin_and_leak(self: HttpToolsProtocol) -> None:
        begin(self)
        _leak(kinds)

    HttpToolsProtocol.on_message_begin = begin_and_leak  # type: ignore[method-assign]  # planted


assert tokens.CACHED > 1000
tokens.CACHED = 1000
assert sessions.ORIGIN_CACHE_ENTRIES > 100
sessions.ORIGIN_CACHE_ENTRIES = 100
signal.signal(signal.SIGUSR2, _report)
if _planted:
    _plant_leak(_planted)
