"""One measured run against one server, and the proof that nothing was lost or doubled in it."""

from dataclasses import dataclass

from bench import load
from bench.service import Service
from bench.store import Conversation, Store


@dataclass(frozen=True)
class Sample:
    """Requests a second, seconds they took, and microseconds of processor for each."""

    rate: float
    p50: float = 0.0
    p99: float = 0.0
    application: float = 0.0
    database: float = 0.0


@dataclass(frozen=True)
class Target:
    """A server, the database behind it and the conversations that are written to."""

    service: Service
    store: Store
    database: str
    conversations: list[Conversation]

    def stored(self) -> int:
        return self.store.stored(self.database, self.conversations)

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
        """`writes`: every answer is a new message; `refused`: nearly every answer is a refusal."""
        self.store.settle()
        before = self.stored()
        used = self.service.processor_seconds(), self.store.processor_seconds()
        outcome = load.run(
            self.service.port,
            requests,
            connections=connections,
            seconds=seconds,
            delay_ms=delay_ms,
        )
        now = self.service.processor_seconds(), self.store.processor_seconds()
        added = self.stored() - before
        _check(outcome, added, connections if writes else 0, writes=writes, refused=refused)
        count = max(outcome.requests, 1)
        application, database = (
            (after - start) / count * 1e6 for start, after in zip(used, now, strict=True)
        )
        answered = outcome.requests if refused else outcome.accepted
        rate = answered / outcome.seconds
        return Sample(rate, outcome.p50, outcome.p99, application, database)


def _check(
    outcome: load.Outcome, added: int, in_flight: int, *, writes: bool, refused: bool
) -> None:
    if outcome.broken or (outcome.refused and not refused):
        raise RuntimeError(f"{outcome.refused} refused and {outcome.broken} broken of {outcome}")
    if refused:
        return
    # Requests that were under way when the clock stopped are stored and were not counted.
    acknowledged = outcome.accepted if writes else 0
    if not acknowledged <= added <= acknowledged + in_flight:
        raise RuntimeError(f"{acknowledged} acknowledged and {added} stored")
