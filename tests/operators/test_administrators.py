"""Format checks of keys, and ETags."""

from typing import cast

import pytest

from hlas.errors import InvalidAdminKey, PreconditionFailed
from hlas.operators import administrators
from hlas.operators.administrators import Administrator
from hlas.store.db import Database
from hlas.tenants import revisions

NO_DATABASE = cast(Database, None)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "hlas_",
        "hlas_" + "a" * 49,
        "hlas_" + "a" * 51,
        "HLAS_" + "a" * 50,
        "hlas_" + "a" * 49 + "\n",
        "hlas_" + "ě" * 50,
        "hlas_" + "٣" * 50,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
    ],
)
async def test_invalid_keys_are_refused_without_sql(key: str) -> None:
    """A string that cannot be a key never reaches the database."""
    with pytest.raises(InvalidAdminKey):
        await administrators.verify(NO_DATABASE, key)


def test_the_audit_names_a_key_without_its_secret() -> None:
    """The actor is the name and the public start of the key."""
    ada = Administrator("id", "Ada", "operator", "abcdefghij", None, None)
    assert ada.actor == "Ada (hlas_abcdefghij)"


def test_a_tag_is_of_the_content() -> None:
    """Equal content has the same tag in any key order; different content has another."""
    assert revisions.tag({"a": 1, "b": [1, 2]}) == revisions.tag({"b": [1, 2], "a": 1})
    assert revisions.tag({"a": 1}) != revisions.tag({"a": 2})


def test_a_change_starts_from_a_state_that_was_read() -> None:
    """A change based on another state is refused; None accepts any state."""
    state = {"a": 1}
    revision = revisions.tag(state)
    revisions.require(None, revision)
    revisions.require(frozenset({"x", revision}), revision)
    for expected in (frozenset[str](), frozenset({revisions.tag({"a": 2})})):
        with pytest.raises(PreconditionFailed):
            revisions.require(expected, revision)
