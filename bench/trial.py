"""One measured run against one server, and a check that nothing was lost or duplicated."""

import time
from dataclasses import dataclass

from bench import load
from bench.service import Service
from bench.store import Conversation, Store


@dataclass(frozen=True)
class Sample:
    """Requests a second; per request: seconds, microseconds of CPU, bytes of WAL."""

    rate: float
    p50: float = 0.0
    p99: float = 0.0
    application: float = 0.0
    database: float = 0.0
    written: float = 0.0
    refused: int = 0


@dataclass(frozen=True)
class Target:
    """A server, the database behind it and the conversations that are written to."""

    service: Service
    store: Store
    database: str
    conversations: list[Conversation]

    def count_stored(self) -> int:
        """Count stored messages when no request is in progress any more."""
        found = -1
        while found != (now := self.store.count_stored(self.database, self.conversations)):
            found = now
            time.sleep(0.1)
        return found

    def run(
        self,
        requests: list[str],
        *,
        connections: int = 64,
        seconds: float,
        delay_ms: int = 0,
        writes: bool = False,
        refused: bool = False,
    ) -> Sample:
        """`writes`: every request stores a message; `refused`: nearly every request is refused."""
        self.store.settle()
        before = self.count_stored()
        used = self._measure_usage()
        outcome = load.run(
            self.service.port,
            requests,
            connections=connections,
            seconds=seconds,
            delay_ms=delay_ms,
        )
        now = self._measure_usage()
        added = self.count_stored() - before
        _check(outcome, added, connections if writes else 0, writes=writes, refused=refused)
        count = max(outcome.requests, 1)
        application, database, written = (
            (after - start) / count for start, after in zip(used, now, strict=True)
        )
        answered = outcome.requests if refused else outcome.accepted
        rate = answered / outcome.seconds
        return Sample(
            rate,
            outcome.p50,
            outcome.p99,
            application * 1e6,
            database * 1e6,
            written,
            0 if refused else outcome.refused,
        )

    def _measure_usage(self) -> tuple[float, float, float]:
        return (
            self.service.processor_seconds(),
            self.store.processor_seconds(),
            self.store.log_bytes(),
        )


def _check(
    outcome: load.Outcome, added: int, in_flight: int, *, writes: bool, refused: bool
) -> None:
    if outcome.broken:
        raise RuntimeError(f"{outcome.broken} connections broke: {outcome}")
    if refused:
        return
    # Requests that were in progress at the end are stored, but not counted.
    acknowledged = outcome.accepted if writes else 0
    if not acknowledged <= added <= acknowledged + in_flight:
        raise RuntimeError(f"{acknowledged} acknowledged and {added} stored")
