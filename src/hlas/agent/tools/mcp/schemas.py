"""What a server says about its tools, made safe to pass on: it is other people's text."""

import re
import unicodedata
from collections.abc import Iterator
from typing import TypeAlias, cast

import orjson

# Paths of properties, and the header that repeats each of them.
Headers: TypeAlias = tuple[tuple[tuple[str, ...], str], ...]

LARGEST_SCHEMA = 8 * 1024
DEEPEST_SCHEMA = 10
LONGEST_REMARK = 300

_REMARKS = frozenset({"title", "description", "$comment"})
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,64}")


class _TooDeep(Exception):
    pass


def clean(text: str, longest: int) -> str:
    """One line without control and invisible characters, which could hide instructions."""
    shown = (" " if unicodedata.category(one)[0] == "C" else one for one in text[: 4 * longest])
    return " ".join("".join(shown).split())[:longest]


def bound_schema(given: object) -> dict[str, object] | None:
    """A copy with short remarks; None for a schema that is not an object's, too large or deep."""
    if not isinstance(given, dict) or given.get("type") != "object":
        return None
    try:
        copy = _copy(given, 0)
        size = len(orjson.dumps(copy))
    except (_TooDeep, orjson.JSONEncodeError):
        return None
    return cast("dict[str, object]", copy) if size <= LARGEST_SCHEMA else None


def _copy(value: object, depth: int) -> object:
    if depth > DEEPEST_SCHEMA:
        raise _TooDeep
    if isinstance(value, list):
        return [_copy(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: clean(item, LONGEST_REMARK)
        if name in _REMARKS and isinstance(item, str)
        else _copy(item, depth + 1)
        for name, item in value.items()
        if name not in {"$schema", "x-mcp-header"}
    }


def find_headers(schema: object) -> Headers:
    """The arguments that a stateless server wants repeated in `Mcp-Param-*` headers."""
    return tuple(_walk(schema, ()))


def _walk(schema: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if not isinstance(schema, dict) or len(path) > DEEPEST_SCHEMA:
        return
    token = schema.get("x-mcp-header")
    if path and isinstance(token, str) and _TOKEN.fullmatch(token):
        yield path, token
    properties = schema.get("properties")
    if isinstance(properties, dict):
        for name, item in properties.items():
            yield from _walk(item, (*path, name))
