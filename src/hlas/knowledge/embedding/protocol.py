"""Messages between workers and the embedding process: a JSON head and vectors, with their lengths.

Vectors are float16, one after another. The first field of a head is the name of its class.
"""

import asyncio
import struct
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypeVar

import orjson

LARGEST_HEAD = 2**20
LARGEST_BODY = 4 * 2**20
MOST_TEXTS = 32
MOST_DIMENSIONS = 4096
# float16
BYTES_PER_NUMBER = 2
# Longer than what a model reads of a text.
LONGEST_TEXT = 4000
# The exit status for a model that will not work after a restart, either.
REFUSED = 78

_LENGTHS = struct.Struct("!II")

Outcome: TypeAlias = Literal["ok", "behind", "busy", "too_large", "other_model", "failed"]


class ProtocolError(Exception):
    """The bytes are not a valid message."""


@dataclass(frozen=True, slots=True)
class Describe:
    """Which model it is. Answered at once, whatever else is going on."""


@dataclass(frozen=True, slots=True)
class Compare:
    """The entries that are nearest to a text, or to the vector in the body."""

    tenant: str
    model: str
    # What the worker knows about the tenant: the last change of its vectors, and its entries.
    cursor: int
    entries: int
    text: str


@dataclass(frozen=True, slots=True)
class Put:
    """Vectors that changed after `since`, up to `until`; an entry has as many as its count."""

    tenant: str
    model: str
    since: int
    until: int
    ids: list[str]
    counts: list[int]


@dataclass(frozen=True, slots=True)
class Keep:
    """The entries that the tenant has; vectors of others are forgotten."""

    tenant: str
    model: str
    ids: list[str]


@dataclass(frozen=True, slots=True)
class Embed:
    """Make vectors of entries' texts; they come in the body of the reply."""

    texts: list[str]


Request: TypeAlias = Describe | Compare | Put | Keep | Embed


@dataclass(frozen=True, slots=True)
class Reply:
    outcome: Outcome
    model: str
    dimensions: int
    # The model reads English only.
    is_english: bool
    # What the process knows about the tenant.
    cursor: int
    entries: int
    # The nearest entries with their likeness, best first.
    ids: list[str]
    scores: list[float]


_REQUESTS: dict[str, type[Request]] = {
    one.__name__: one for one in (Describe, Compare, Put, Keep, Embed)
}
_ITEMS: dict[object, type] = {list[str]: str, list[int]: int, list[float]: float}
Head = TypeVar("Head", bound=Request | Reply)


def encode(message: Request | Reply, body: bytes = b"") -> bytes:
    values = [getattr(message, field.name) for field in fields(message)]
    head = orjson.dumps([type(message).__name__, *values])
    return _LENGTHS.pack(len(head), len(body)) + head + body


async def _read(reader: asyncio.StreamReader) -> tuple[list[object], bytes]:
    head_length, body_length = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if head_length > LARGEST_HEAD or body_length > LARGEST_BODY:
        raise ProtocolError
    head = await reader.readexactly(head_length)
    body = await reader.readexactly(body_length)
    try:
        values = orjson.loads(head)
    except orjson.JSONDecodeError:
        raise ProtocolError from None
    if not isinstance(values, list) or not values:
        raise ProtocolError
    return values, body


async def read_request(reader: asyncio.StreamReader) -> tuple[Request, bytes]:
    (name, *values), body = await _read(reader)
    kind = _REQUESTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError
    return _build(kind, values), body


async def read_reply(reader: asyncio.StreamReader) -> tuple[Reply, bytes]:
    (name, *values), body = await _read(reader)
    if name != "Reply":
        raise ProtocolError
    return _build(Reply, values), body


def _build(kind: type[Head], values: list[Any]) -> Head:
    expected = fields(kind)
    if len(values) != len(expected):
        raise ProtocolError
    for field, value in zip(expected, values, strict=True):
        if not _is_of_type(value, field.type):
            raise ProtocolError
    return kind(*values)


def _is_of_type(value: object, wanted: object) -> bool:
    if wanted in _ITEMS:
        item = _ITEMS[wanted]
        return isinstance(value, list) and all(type(one) is item for one in value)
    if wanted in {str, int, bool}:
        # Also a bool is an int.
        return type(value) is wanted
    return isinstance(value, str)
