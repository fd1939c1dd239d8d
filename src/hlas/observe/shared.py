"""One result for everybody who asks within a moment, however many they are."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

Result = TypeVar("Result")

SECONDS = 1.0


class Shared(Generic[Result]):
    """Makes a result again when it is older than a second; who asks meanwhile waits for it."""

    def __init__(
        self,
        make: Callable[[], Coroutine[None, None, Result]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._clock = clock
        self._making: asyncio.Task[Result] | None = None
        self._stale_at = 0.0

    async def get(self) -> Result:
        now = self._clock()
        if self._making is None or (self._making.done() and self._stale_at <= now):
            self._stale_at = now + SECONDS
            self._making = asyncio.create_task(self._make())
        # One that asked and left does not take the result from the others.
        return await asyncio.shield(self._making)
