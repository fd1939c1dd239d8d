"""Prometheus metrics with fixed label values, right with one worker process or many."""

import os
from bisect import bisect_left
from collections.abc import Callable
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
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
# Whose latency tenants are shown, and the names of its buckets: their upper bounds in seconds.
MEASURED = "/widget/messages"
BUCKETS = (*(f"{bound:g}" for bound in LATENCY), "inf")


class Tally(Protocol):
    """Counts by tenant, for the console."""

    def count(self, kind: str, detail: str = "") -> None: ...

    def block(self, reason: str, scope: str, route: str) -> None: ...


class Metrics:
    """Every metric of the service; children are kept, since looking labels up is what costs."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.registry = CollectorRegistry()
        self._tally = tally
        requests = self._counter(
            "hlas_http_requests", "Answered requests", ("method", "route", "status")
        )
        duration = Histogram(
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
        self._requests(known, route, str(status)).inc()
        self._duration(known, route).observe(seconds)
        if route == MEASURED and status == 200 and self._tally is not None:
            self._tally.count("latency", BUCKETS[bisect_left(LATENCY, seconds)])

    def blocked(self, reason: str, scope: str, route: str) -> None:
        self._blocked(reason, scope, route).inc()
        if self._tally is not None:
            self._tally.block(reason, scope, route)

    def idempotency(self, outcome: str) -> None:
        self._idempotency(outcome).inc()
        if self._tally is not None:
            self._tally.count("idempotency", outcome)

    def session(self, outcome: str) -> None:
        self._sessions(outcome).inc()
        if self._tally is not None:
            self._tally.count("session", outcome)

    def message(self, role: str) -> None:
        self._messages(role).inc()
        if self._tally is not None:
            self._tally.count("message", role)

    def auth_denied(self, reason: str) -> None:
        self._auth(reason).inc()

    def batch(self, rows: int, waiting: int) -> None:
        self.batch_size.observe(rows)
        self.queue_depth.set(waiting)

    def text(self) -> bytes:
        """What Prometheus reads: this process's numbers, or the sum over all workers."""
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
