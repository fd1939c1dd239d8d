"""A clock that advances only when a test says so."""

from hlas.limits.rules import NANOSECONDS


class Clock:
    def __init__(self) -> None:
        self.nanoseconds = 0

    def __call__(self) -> int:
        return self.nanoseconds

    def advance(self, seconds: float) -> None:
        self.nanoseconds += int(seconds * NANOSECONDS)
