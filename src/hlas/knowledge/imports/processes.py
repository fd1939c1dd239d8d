"""Limits of the processes that read what strangers wrote."""

import resource
from contextlib import suppress


def limit(what: int, most: int) -> None:
    # Not every system has every limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))
