"""How many streams each address and each conversation has open at this worker."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from hlas import errors, log
from hlas.limits.rules import Scope
from hlas.observe.metrics import Metrics
from hlas.settings import Settings

# A place is free again when the client closes another stream.
RETRY = {"Retry-After": "5"}

# A scope, and the address, conversation or administrator that the stream counts for.
Place: TypeAlias = tuple[Scope, str]


class OpenStreams:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._limits: dict[Scope, int] = {
            "ip": settings.rate_limit_streams_ip,
            "conversation": settings.rate_limit_streams_conversation,
            # An administrator's.
            "key": settings.rate_limit_streams_ip,
        }
        self._enforce = settings.rate_limit_enforce
        self._metrics = metrics
        self._open: Counter[Place] = Counter()
        self._count = 0

    def require_room(self, places: Sequence[Place], route: str) -> None:
        """Raise if there are too many streams for one more; in a dry run, log and count it."""
        for scope, name in places:
            most = self._limits[scope]
            if most and self._open[scope, name] >= most:
                if self._enforce:
                    raise errors.RateLimited(scope, RETRY)
                log.warning(
                    "blocked", reason="rate_limited", scope=scope, route=route, enforced=False
                )
                self._metrics.blocked("rate_limited_dry_run", scope, route)
                return

    def enter(self, places: Sequence[Place]) -> None:
        """Count a new stream."""
        self._open.update(places)
        self._show(1)

    def leave(self, places: Sequence[Place]) -> None:
        """A stream that was counted has ended."""
        self._release(places)
        self._show(-1)

    @contextmanager
    def hold(self, places: Sequence[Place]) -> Iterator[None]:
        """Count a request that waits: it takes a place as a stream does."""
        self._open.update(places)
        try:
            yield
        finally:
            self._release(places)

    def _release(self, places: Sequence[Place]) -> None:
        for place in places:
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]

    def _show(self, change: int) -> None:
        self._count += change
        self._metrics.streams_open.set(self._count)


def list_places(address: str | None, conversation_id: str) -> list[Place]:
    """Where a visitor's stream counts."""
    places: list[Place] = [("conversation", conversation_id)]
    # Without an address, as on a unix socket, only the other limit applies.
    return [("ip", address), *places] if address else places


def list_waiting_places(address: str | None) -> list[Place]:
    """Where a request counts that waits for an answer: many may wait for the same one."""
    return [("ip", address)] if address else []
