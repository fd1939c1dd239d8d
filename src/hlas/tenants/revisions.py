"""Which state of a thing somebody has read, so that nobody overwrites what they have not seen."""

import hashlib
from typing import Any

import orjson

from hlas.errors import PreconditionFailed

# The states a change may start from; None means whatever it is now.
Expected = frozenset[str] | None


def tag(value: Any) -> str:
    """The same for the same content, whenever and by whomever it was written."""
    canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()[:20]


def require(expected: Expected, value: Any) -> None:
    """Ask with the row locked, so that nothing comes between the answer and the change."""
    if expected is not None and tag(value) not in expected:
        raise PreconditionFailed
