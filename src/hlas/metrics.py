"""Prometheus metrics with fixed label values, right with one worker process or many."""

import asyncio
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SHARE_SECONDS = 0.5
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
# Whose latency tenants are shown, and the names of its buckets: their upper bounds in seconds.
MEASURED = "/widget/messages"
BUCKETS = (*(f"{bound:g}" for bound in LATENCY), "inf")
INCIDENTS = (
    "origin_mismatches",
    "conversation_mismatches",
    "token_failures",
    "identity_failures",
    "limit_hits",
)


class Tally(Protocol):
    """Counts by tenant, for the console."""

    def count(self, kind: str, detail: str = "", tenant_id: str | None = None) -> None: ...

    def block(self, reason: str, scope: str, route: str) -> None: ...


def _no_times() -> list[int]:
    return [0] * len(BUCKETS)


class _Latency(Histogram):
    """Takes many observations at once."""

    def add(self, counts: Sequence[int], seconds: float) -> None:
        """How many fell into each bucket, and their sum."""
        self._sum.inc(seconds)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class Metrics:
    """Every metric of the service; children are kept, since looking labels up is what costs.

    What each request counts is added up here first and handed over now and then: with several
    workers Prometheus's own counters live in shared files and cost more than a limit does.
    """

    def __init__(self, tally: Tally | None = None) -> None:
        self.registry = CollectorRegistry()
        self._tally = tally
        self._counted: defaultdict[Counter, int] = defaultdict(int)
        self._timed: defaultdict[_Latency, list[int]] = defaultdict(_no_times)
        self._seconds: defaultdict[_Latency, float] = defaultdict(float)
        requests = self._counter(
            "hlas_http_requests", "Answered requests", ("method", "route", "status")
        )
        duration = _Latency(
            "hlas_http_request_duration_seconds",
            "Time from a request's headers to its last byte",
            ("method", "route"),
            registry=self.registry,
            buckets=LATENCY,
        )
        blocked = self._counter("hlas_blocked", "Refused requests", ("reason", "scope", "route"))
        idempotency = self._counter(
            "hlas_idempotency", "Keyed requests that reached the store", ("outcome",)
        )
        sessions = self._counter("hlas_sessions", "Sessions asked for", ("outcome",))
        messages = self._counter("hlas_messages", "Messages stored", ("role",))
        auth = self._counter("hlas_auth_denied", "Refused tokens", ("reason",))
        self._incidents = self._counter("hlas_incidents", "Signs of abuse at a tenant", ("kind",))
        # There from the start, so that an alert sees the first one.
        for kind in INCIDENTS:
            self._incidents.labels(kind)
        self.batch_size = Histogram(
            "hlas_write_batch_size",
            "Messages in one statement of the writer",
            registry=self.registry,
            buckets=BATCHES,
        )
        self.queue_depth = Gauge(
            "hlas_write_queue_depth",
            "Messages waiting for the writer",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.limits_local = Gauge(
            "hlas_limits_local",
            "Workers that keep limits by themselves because Redis is away",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._requests = cache(requests.labels)
        self._duration = cache(duration.labels)
        self._blocked = cache(blocked.labels)
        self._idempotency = cache(idempotency.labels)
        self._sessions = cache(sessions.labels)
        self._messages = cache(messages.labels)
        self._auth = cache(auth.labels)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in METHODS else "OTHER"
        self._counted[self._requests(known, route, str(status))] += 1
        duration = self._duration(known, route)
        bucket = bisect_left(LATENCY, seconds)
        self._timed[duration][bucket] += 1
        self._seconds[duration] += seconds
        if route == MEASURED and status == 200 and self._tally is not None:
            self._tally.count("latency", BUCKETS[bucket])

    def blocked(self, reason: str, scope: str, route: str) -> None:
        self._counted[self._blocked(reason, scope, route)] += 1
        if self._tally is not None:
            self._tally.block(reason, scope, route)

    def idempotency(self, outcome: str) -> None:
        self._counted[self._idempotency(outcome)] += 1
        if self._tally is not None:
            self._tally.count("idempotency", outcome)

    def session(self, outcome: str) -> None:
        self._counted[self._sessions(outcome)] += 1
        if self._tally is not None:
            self._tally.count("session", outcome)

    def message(self, role: str) -> None:
        self._counted[self._messages(role)] += 1
        if self._tally is not None:
            self._tally.count("message", role)

    def auth_denied(self, reason: str, tenant_id: str | None = None) -> None:
        self._counted[self._auth(reason)] += 1
        if self._tally is not None:
            self._tally.count("auth", reason, tenant_id)

    def incident(self, kind: str) -> None:
        self._incidents.labels(kind).inc()

    def batch(self, rows: int, waiting: int) -> None:
        self.batch_size.observe(rows)
        self.queue_depth.set(waiting)

    async def share(self) -> None:
        """Let the other workers see this one's numbers, at most a moment late."""
        while True:
            await asyncio.sleep(SHARE_SECONDS)
            self.hand_over()

    def hand_over(self) -> None:
        """Give Prometheus's counters what was added up since the last time."""
        counted, self._counted = self._counted, defaultdict(int)
        timed, self._timed = self._timed, defaultdict(_no_times)
        seconds, self._seconds = self._seconds, defaultdict(float)
        for counter, count in counted.items():
            counter.inc(count)
        for duration, counts in timed.items():
            duration.add(counts, seconds[duration])

    def text(self) -> bytes:
        """What Prometheus reads: this process's numbers, or the sum over all workers."""
        self.hand_over()
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def share_between_workers(directory: Path) -> Callable[[], None]:
    """Before the first metric is made: let every worker write to files that any of them can sum."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for stale in directory.glob("*.db"):
        stale.unlink()
    os.environ[MULTIPROCESS] = str(directory)

    def forget() -> None:
        os.environ.pop(MULTIPROCESS, None)
        for file in directory.glob("*.db"):
            file.unlink(missing_ok=True)

    return forget
