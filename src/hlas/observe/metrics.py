"""Prometheus metrics with fixed label values, right with one worker process or many."""

import asyncio
import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

from hlas.background import TASKS
from hlas.observe.shared import Shared

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
LATENCY = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FIRST_TOKEN = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SHARE_SECONDS = 0.5
MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
# The route whose latency tenants see, and the names of its buckets: upper bounds in seconds.
MEASURED = "/widget/messages"
BUCKETS = (*(f"{bound:g}" for bound in LATENCY), "inf")
INCIDENTS = (
    "origin_mismatches",
    "conversation_mismatches",
    "token_failures",
    "identity_failures",
    "limit_hits",
)
# What became of the wish to compare a question by its meaning; all but ok are ranked without it.
SEMANTIC = (
    "ok",
    "empty",
    "behind",
    "syncing",
    "busy",
    "timeout",
    "away",
    "skipped",
    "too_large",
    "other_model",
    "database",
    "budget",
    "endpoint",
    "failed",
)
# Incidents about money: a cap is used to 80 %, or used up.
BUDGETS = ("budget_80", "budget_100")
NANO = 1_000_000_000


class Tally(Protocol):
    """Counts by tenant, for the console."""

    def count(self, kind: str, detail: str = "", tenant_id: str | None = None) -> None: ...

    def block(self, reason: str, scope: str, route: str) -> None: ...


# A counter and the values of its labels.
_Labelled: TypeAlias = tuple[Counter, *tuple[str | int, ...]]


def _no_times() -> list[float]:
    """A count for each bucket, and the sum of all observations."""
    return [0.0] * (len(BUCKETS) + 1)


class _Latency(Histogram):
    """Takes many observations at once."""

    def add(self, times: Sequence[float]) -> None:
        *counts, seconds = times
        self._sum.inc(seconds)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class Metrics:
    """Every metric of the service.

    Counts of requests are added up here first and handed over every SHARE_SECONDS: with several
    workers Prometheus's own counters live in shared files, and one costs more than a rate limit.
    """

    def __init__(self, tally: Tally | None = None) -> None:
        self.registry = CollectorRegistry()
        self.page = Shared(self._render)
        self._tally = tally
        self._counted: defaultdict[_Labelled, int] = defaultdict(int)
        self._timed: defaultdict[tuple[str, str], list[float]] = defaultdict(_no_times)
        self._requests = self._counter(
            "hlas_http_requests", "Answered requests", ("method", "route", "status")
        )
        self._duration = _Latency(
            "hlas_http_request_duration_seconds",
            "Time from a request's headers to its last byte",
            ("method", "route"),
            registry=self.registry,
            buckets=LATENCY,
        )
        self._blocked = self._counter(
            "hlas_blocked", "Refused requests", ("reason", "scope", "route")
        )
        self._idempotency = self._counter(
            "hlas_idempotency", "Keyed requests that reached the store", ("outcome",)
        )
        self._sessions = self._counter("hlas_sessions", "Sessions asked for", ("outcome",))
        self._messages = self._counter("hlas_messages", "Messages stored", ("role",))
        self._auth = self._counter("hlas_auth_denied", "Refused tokens", ("reason",))
        self._incidents = self._counter("hlas_incidents", "Incidents at a tenant", ("kind",))
        # Every series exists from the start, so that an alert sees the first increase.
        for kind in (*INCIDENTS, *BUDGETS):
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
        self._background_failures = self._counter(
            "hlas_background_failures", "Failures of background tasks", ("task",)
        )
        self._background_running = Gauge(
            "hlas_background_running",
            "Workers in which a background task runs",
            ("task",),
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        for task in TASKS:
            self._background_failures.labels(task)
            self._background_running.labels(task)

        self._runs = self._counter(
            "hlas_runs", "Answers that were begun, by their source and end", ("source", "outcome")
        )
        self._first_token = Histogram(
            "hlas_run_first_token_seconds",
            "Time from the start of a run to its first words",
            registry=self.registry,
            buckets=FIRST_TOKEN,
        )
        self._model_tokens = self._counter(
            "hlas_model_tokens", "Tokens that models have read and written", ("kind",)
        )
        for kind in ("input", "output"):
            self._model_tokens.labels(kind)
        self._model_cost = self._counter(
            "hlas_model_cost_usd", "Cost of settled model requests in US dollars", ()
        )
        self._tool_calls = self._counter(
            "hlas_tool_calls", "Tools that models called, by outcome", ("outcome",)
        )
        self._semantic = self._counter(
            "hlas_semantic", "Questions to be compared by meaning, by outcome", ("outcome",)
        )
        for outcome in SEMANTIC:
            self._semantic.labels(outcome)
        self._embedding_up = Gauge(
            "hlas_embedding_up",
            "Embedding processes that answer, one on each host",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self._vectors_missing = Gauge(
            "hlas_vectors_missing",
            "Entries of all tenants whose vectors are still to be made",
            registry=self.registry,
            multiprocess_mode="livemax",
        )
        self.streams_open = Gauge(
            "hlas_streams_open",
            "Open streams of conversations",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        if method not in METHODS:
            method = "OTHER"
        self._counted[self._requests, method, route, status] += 1
        bucket = bisect_left(LATENCY, seconds)
        times = self._timed[method, route]
        times[bucket] += 1
        times[-1] += seconds
        if route == MEASURED and status == 200 and self._tally is not None:
            self._tally.count("latency", BUCKETS[bucket])

    def blocked(self, reason: str, scope: str, route: str) -> None:
        self._counted[self._blocked, reason, scope, route] += 1
        if self._tally is not None:
            self._tally.block(reason, scope, route)

    def idempotency(self, outcome: str) -> None:
        self._counted[self._idempotency, outcome] += 1
        if self._tally is not None:
            self._tally.count("idempotency", outcome)

    def session(self, outcome: str) -> None:
        self._counted[self._sessions, outcome] += 1
        if self._tally is not None:
            self._tally.count("session", outcome)

    def message(self, role: str) -> None:
        self._counted[self._messages, role] += 1
        if self._tally is not None:
            self._tally.count("message", role)

    def run(self, source: str, outcome: str) -> None:
        self._counted[self._runs, source, outcome] += 1

    def tool_call(self, outcome: str) -> None:
        self._counted[self._tool_calls, outcome] += 1

    def semantic(self, outcome: str) -> None:
        self._counted[self._semantic, outcome] += 1

    def show_embedding(self, *, is_up: bool) -> None:
        self._embedding_up.set(is_up)

    def show_vectors(self, *, missing: int) -> None:
        self._vectors_missing.set(missing)

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def model_usage(self, input_tokens: int, output_tokens: int, cost: int) -> None:
        """Count one settled request; `cost` is in nano-dollars."""
        self._model_tokens.labels("input").inc(input_tokens)
        self._model_tokens.labels("output").inc(output_tokens)
        self._model_cost.inc(cost / NANO)

    def auth_denied(self, reason: str, tenant_id: str | None = None) -> None:
        self._counted[self._auth, reason] += 1
        if self._tally is not None:
            self._tally.count("auth", reason, tenant_id)

    def incident(self, kind: str) -> None:
        self._incidents.labels(kind).inc()

    def batch(self, rows: int, waiting: int) -> None:
        self.batch_size.observe(rows)
        self.queue_depth.set(waiting)

    def count_background_failure(self, task: str) -> None:
        self._background_failures.labels(task).inc()

    def show_background(self, task: str, *, is_running: bool) -> None:
        self._background_running.labels(task).set(is_running)

    async def share(self) -> None:
        """Let the other workers see this one's numbers; every SHARE_SECONDS."""
        self.hand_over()

    def hand_over(self) -> None:
        """Add what was counted since the last time to Prometheus's own counters."""
        counted, self._counted = self._counted, defaultdict(int)
        timed, self._timed = self._timed, defaultdict(_no_times)
        for (counter, *labels), count in counted.items():
            counter.labels(*labels).inc(count)
        for (method, route), times in timed.items():
            self._duration.labels(method, route).add(times)

    async def _render(self) -> bytes:
        """Render in a thread: with many series it would delay messages."""
        self.hand_over()
        return await asyncio.to_thread(self._text)

    def _text(self) -> bytes:
        """The page for Prometheus: this process alone, or the sum over all workers."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def share_between_workers(directory: Path) -> Callable[[], None]:
    """Let workers write metrics to files that any of them can sum; call before the first metric."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for stale in directory.glob("*.db"):
        stale.unlink()
    os.environ[MULTIPROCESS] = str(directory)

    def forget() -> None:
        os.environ.pop(MULTIPROCESS, None)
        for file in directory.glob("*.db"):
            file.unlink(missing_ok=True)

    return forget
