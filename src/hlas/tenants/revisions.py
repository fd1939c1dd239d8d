"""Revisions for optimistic locking: a change is refused when the caller has read another state."""

import hashlib
from collections.abc import Mapping

import orjson

from hlas.errors import PreconditionFailed

# The revisions a change may start from; None accepts any.
Expected = frozenset[str] | None


def tag(content: Mapping[str, object]) -> str:
    """A digest of the content: equal content has an equal tag, whatever the order of its keys."""
    canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:20]


def require(expected: Expected, revision: str) -> None:
    """Call this with the row locked, so that nothing changes between the check and the write."""
    if expected is not None and revision not in expected:
        raise PreconditionFailed
