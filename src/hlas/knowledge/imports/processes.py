"""Limits of the processes that read what strangers wrote."""

import resource
from contextlib import suppress

# Time for one document, and room for what is found in it.
DOCUMENT_SECONDS = 20
LARGEST_ANSWER = 32 * 2**20


def limit(what: int, most: int) -> None:
    # Not every system has every limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (most, most))
