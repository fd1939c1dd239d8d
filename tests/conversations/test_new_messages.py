"""What makes two requests the same: their key and their payload."""

import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from hlas import errors
from hlas.conversations.messages import NewMessage, parse_key

# Written down once: a stored hash has to be recognised by every later version.
GOLDEN = "011b5269217046c0fd8a2faa2864f93bbb1e25b0ddae20eaa9b08d0e00cd67d6a7"

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
OBJECTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def parse(**payload: Any) -> NewMessage:
    return NewMessage.parse(orjson.dumps(payload), longest=2000)


def hash_of(**payload: Any) -> bytes:
    return parse(**payload).request_hash()


def shuffled(value: Any) -> Any:
    """The same value with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {name: shuffled(item) for name, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("key", ["a", "a" * 255, '"', "a,b", "!~", "9b2e-4f"])
def test_valid_keys(key: str) -> None:
    """Edge case 13: 1 to 255 visible ASCII characters pass, quoted or not."""
    assert parse_key([key]) == key
    assert parse_key([f'"{key}"']) == key
    assert parse_key([f" \t{key} "]) == key


@pytest.mark.parametrize(
    "header", ["", " ", '""', '" "', "a" * 256, '"' + "a" * 256 + '"', "a b", "a\tb", "é", "a\x7f"]
)
def test_invalid_keys(header: str) -> None:
    """Edge case 13: empty, blank, too long, other characters."""
    with pytest.raises(errors.InvalidIdempotencyKey):
        parse_key([header])


def test_two_key_headers() -> None:
    """Edge case 13: two headers are refused even when they are equal."""
    with pytest.raises(errors.InvalidIdempotencyKey):
        parse_key(["a", "a"])
    assert parse_key([]) is None


def test_hash_is_stable() -> None:
    """Edge case 15: the hash of a payload is the same in every release."""
    message = parse(text="Dobrý den", metadata={"b": [1, 2.5, None], "a": {"y": True, "x": "ž"}})
    assert message.request_hash().hex() == GOLDEN


def test_hash_survives_a_new_field() -> None:
    """Edge case 15: a deploy that adds a field with a default recognises older requests."""

    class LaterMessage(NewMessage):
        channel: str = Field(default="text")

    later = LaterMessage.parse(b'{"text": "hi", "metadata": {"a": 1}}', longest=10)
    assert later.request_hash() == hash_of(text="hi", metadata={"a": 1})


@given(metadata=st.dictionaries(st.text(max_size=5), OBJECTS, min_size=1, max_size=5))
def test_key_order_does_not_matter(metadata: dict[str, Any]) -> None:
    """Edge case 11: the order of JSON keys makes no difference, at any depth."""
    if "\0" in orjson.dumps(metadata).decode().replace("\\u0000", "\0"):
        return
    one = hash_of(text="hi", metadata=metadata)
    other = NewMessage.parse(
        orjson.dumps({"metadata": shuffled(metadata), "text": "hi"}), longest=2000
    )
    assert other.request_hash() == one


def test_same_payloads() -> None:
    """Edge case 11: metadata null, absent and {} are one; text counts after trimming."""
    plain = hash_of(text="hi")
    assert hash_of(text="hi", metadata=None) == plain
    assert hash_of(text="hi", metadata={}) == plain
    assert hash_of(text=" \t hi\n") == plain
    assert parse(text="hi", metadata=None).metadata == {}


def test_different_payloads() -> None:
    """Edge case 11: NFC and NFD differ, and so does everything that is stored differently."""
    composed = unicodedata.normalize("NFC", "é")
    decomposed = unicodedata.normalize("NFD", "é")
    hashes = [
        hash_of(text=composed),
        hash_of(text=decomposed),
        hash_of(text="É"),
        hash_of(text="a b"),
        hash_of(text="a  b"),
        hash_of(text="a b", metadata={"n": 1}),
        hash_of(text="a b", metadata={"n": "1"}),
        hash_of(text="a b", metadata={"n": True}),
        hash_of(text="a b", metadata={"n": None}),
        hash_of(text="a b", metadata={"n": [1]}),
        # Text that looks like the other field must not be taken for it.
        hash_of(text='a b","metadata":{"n":1}'),
    ]
    assert len(set(hashes)) == len(hashes)


def test_last_duplicate_wins() -> None:
    """Edge case 12: of duplicate JSON keys the last one is hashed and stored, at any depth."""
    body = b'{"text": "one", "metadata": {"a": 1, "a": 2}, "text": "two"}'
    message = NewMessage.parse(body, longest=10)
    assert (message.text, message.metadata) == ("two", {"a": 2})
    assert message.request_hash() == hash_of(text="two", metadata={"a": 2})
