"""The path of a message in docs/architecture.md is the one that the server takes.

Fails with these defects planted: a function renamed, one listed that is not called, a wrong total.
"""

import asyncio
import re
import sys
from pathlib import Path
from types import FrameType

from factories import Live, make_site
from hlas.store.db import Database

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
SOURCE = f"{ROOT}/src/hlas/"


def read_path() -> dict[str, list[str]]:
    """Functions of each row of the table, and their files: last names, as a frame has them."""
    section = PAGE.partition("## The path of a message")[2]
    rows = re.findall(r"^\| [a-z].*? \| (`.*?) \| (`.*?) \|$", section, re.MULTILINE)
    return {files: re.findall(r"`([^`]+)`", functions) for functions, files in rows}


def is_called(function: str, files: str, called: set[tuple[str, str]]) -> bool:
    """Whether a function of one of the files was called; the name of a class is its constructor."""
    last = function.rpartition(".")[2]
    names = {f"{last}.__init__"} if last[0].isupper() else {function}
    paths = re.findall(r"`([^`]+)`", files)
    return any(
        path in paths and (name in names or name.rpartition(".")[2] in names)
        for path, name in called
    )


async def test_path(live_server: Live, operators: Database) -> None:
    """Every function of the list runs when a message is sent, and the totals are those listed."""
    site = await make_site(live_server, operators, handler="agent")
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            called.add((code.co_filename.removeprefix(SOURCE), code.co_qualname))

    sys.setprofile(note)
    try:
        assert (await site.send("hello")).status_code == 200
        await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    path = read_path()
    missing = [
        function
        for files, functions in path.items()
        for function in functions
        if not is_called(function, files, called)
    ]
    assert missing == []
    files = {name for row in path for name in re.findall(r"`([^`]+)`", row)}
    functions = sum(map(len, path.values()))
    assert f"These are {functions} functions in {len(files)} files." in PAGE
