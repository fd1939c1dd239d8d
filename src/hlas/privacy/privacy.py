"""The names of subjects, export and erasure in one place, for callers that use all three."""

from hlas.privacy.erasure import (
    BATCH_CONVERSATIONS,
    anonymise,
    erase,
    in_batches,
    remove_some,
)
from hlas.privacy.export import export
from hlas.privacy.subjects import Count, Progress, Subject
from hlas.privacy.subjects import count_data as size
from hlas.privacy.subjects import find_subject as subject

__all__ = [
    "BATCH_CONVERSATIONS",
    "Count",
    "Progress",
    "Subject",
    "anonymise",
    "erase",
    "export",
    "in_batches",
    "remove_some",
    "size",
    "subject",
]
