"""What a model is given."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A numbered piece of text that an answer may cite; `url` may be empty."""

    number: int
    entry_id: str
    title: str
    text: str
    url: str
