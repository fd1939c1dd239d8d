"""Parses untrusted JSON, once and in one way, and accepts only what the database can store."""

from typing import Annotated

import orjson
from pydantic import AfterValidator, ValidationError
from pydantic_core import PydanticCustomError

from hlas.errors import InvalidRequest

DEEPEST = 32
LARGEST_INTEGER = 2**63 - 1
# The database writes out every digit: 5e-324 is stored as 326 characters.
SMALLEST_FRACTION = 1e-18
# Bounds the compact JSON form, because every page of history returns it.
LARGEST_METADATA_BYTES = 4096


def loads(body: bytes) -> object:
    """Strict UTF-8 JSON: no NaN, no lone surrogates; of duplicate keys the last wins."""
    if not body:
        raise InvalidRequest.at("body", kind="missing")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidRequest.at("body", kind="json_invalid") from None


def invalid(error: ValidationError, place: str = "body") -> InvalidRequest:
    """Location and type of the problem, never the value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return InvalidRequest(
        [{"loc": [place, *problem["loc"]], "type": problem["type"]} for problem in found]
    )


def _check(value: object, depth: int) -> None:
    if depth > DEEPEST:
        raise PydanticCustomError("too_deep", "nested too deep")
    if isinstance(value, str):
        if "\0" in value:
            raise PydanticCustomError("invalid_character", "NUL")
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name, depth)
            _check(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, int | float):
        _check_number(value)


def _check_number(value: float) -> None:
    if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
        # Larger numbers silently change in browsers and libraries that read them.
        raise PydanticCustomError("number_too_large", "number too large")
    if 0 < abs(value) < SMALLEST_FRACTION:
        raise PydanticCustomError("number_too_small", "number too small")


def _storable(value: dict[str, object] | None) -> dict[str, object]:
    _check(value, 0)
    if value and len(orjson.dumps(value)) > LARGEST_METADATA_BYTES:
        raise PydanticCustomError("metadata_too_large", "too large")
    return value or {}


Metadata = Annotated[dict[str, object] | None, AfterValidator(_storable)]


def storable(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("invalid_character", "NUL")
    return value


def one_line(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("invalid_character", "control character")
    return value


# Ordinary text: several lines, or one line without control characters.
Text = Annotated[str, AfterValidator(storable)]
Line = Annotated[str, AfterValidator(one_line)]


def require_empty(content: bytes) -> None:
    """Require no body, or an empty object."""
    if content and loads(content) != {}:
        raise InvalidRequest.at("body", kind="extra_forbidden")
