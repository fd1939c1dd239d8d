"""JSON from untrusted clients."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hlas import payloads
from hlas.errors import InvalidRequest


class Holder(BaseModel):
    metadata: payloads.Metadata = None


def kind_of(value: Any) -> str:
    """The type of error that a value in metadata causes; empty if it is accepted."""
    try:
        Holder.model_validate({"metadata": value})
    except ValidationError as error:
        return str(error.errors()[0]["type"])
    return ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"{",
        b'{"text":"x"',
        b'{"text":"x"}x',
        b"NaN",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":1e999}',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\x01"}',
        "{}".encode("utf-16"),
        "{}".encode("utf-32"),
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{'a':1}",
        b"undefined",
        b"//x\n{}",
    ],
)
def test_invalid_json(body: bytes) -> None:
    """Edge case 34: anything that is not strict UTF-8 JSON is refused in our error format."""
    with pytest.raises(InvalidRequest) as caught:
        payloads.loads(body)
    assert caught.value.errors[0]["type"] in {"missing", "json_invalid"}


def test_duplicate_keys() -> None:
    """Edge case 12: if a key is repeated, the last value wins."""
    assert payloads.loads(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": "\0"}, "invalid_character"),
        ({"\0": 1}, "invalid_character"),
        ({"a": [{"b": "x\0y"}]}, "invalid_character"),
        ({"a": 2**63}, "number_too_large"),
        ({"a": -(2**63) - 1}, "number_too_large"),
        ({"a": 1e300}, "number_too_large"),
        ({"a": 5e-324}, "number_too_small"),
        ({"a": -1e-19}, "number_too_small"),
        ({"a": 2**53}, ""),
        ({"a": True, "b": None, "c": 1.5, "d": []}, ""),
        ([], "dict_type"),
        ("text", "dict_type"),
    ],
)
def test_metadata(value: Any, kind: str) -> None:
    """Edge case 34: only values that PostgreSQL can store and browsers can read are accepted."""
    assert kind_of(value) == kind


def test_depth() -> None:
    """Edge case 34: nesting is bounded."""

    def nested(depth: int) -> Any:
        return {"a": nested(depth - 1)} if depth else 1

    assert kind_of(nested(payloads.DEEPEST)) == ""
    assert kind_of(nested(payloads.DEEPEST + 1)) == "too_deep"


def test_error_holds_no_input() -> None:
    """Edge case 34: an error has the location and the type, never the input."""
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"metadata": "swordfish"})
    found = payloads.invalid(caught.value)
    assert found.extra == {"errors": [{"loc": ["body", "metadata"], "type": "dict_type"}]}


@given(st.binary(max_size=200))
def test_any_bytes(body: bytes) -> None:
    """Edge case 34: any bytes are parsed as JSON or raise InvalidRequest, nothing else."""
    try:
        payloads.loads(body)
    except InvalidRequest:
        pass  # the only expected error
