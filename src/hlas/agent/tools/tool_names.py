"""Names of tools, as models, settings and people know them."""

import re
from collections.abc import Iterable

LONGEST_NAME = 64
SEPARATOR = "__"
# Instead of a tool's name: all of the server's.
ALL = "*"


def make_name(server: str, tool: str) -> str:
    """A name that every model provider accepts."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}{SEPARATOR}{tool}")[:LONGEST_NAME]


def normalize(name: str) -> str:
    """A name from the settings as `make_name` makes it: owners may write the server's own name."""
    server, separator, tool = name.partition(SEPARATOR)
    return make_name(server, tool) if separator and tool != ALL else name


def is_named(name: str, names: Iterable[str]) -> bool:
    """Whether the settings name this tool itself."""
    return name in set(map(normalize, names))


def is_listed(name: str, names: Iterable[str]) -> bool:
    """Whether the settings name this tool, or all of its server's."""
    names = set(names)
    server, separator, _ = name.partition(SEPARATOR)
    return is_named(name, names) or (bool(separator) and f"{server}{SEPARATOR}{ALL}" in names)
