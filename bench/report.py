"""One table from all samples: ratios first, then absolute figures, each with its verdict."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.suite import Suite
from bench.trial import Sample

LimiterRows = list[dict[str, Any]]


@dataclass(frozen=True)
class Row:
    what: str
    measured: str
    target: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "**missed**", None: ""}[self.met]


class Report:
    def __init__(self, suite: Suite, limiter: LimiterRows) -> None:
        self.samples = suite.samples
        self.plan = suite.plan
        self.limiter = limiter
        self.bytes_each = suite.bytes_each
        self.sync = median(sync.median for sync in suite.syncs)
        self.sync_p99 = median(sync.p99 for sync in suite.syncs)

    def rate(self, name: str) -> float:
        return self._median(name, lambda sample: sample.rate)

    def p50(self, name: str) -> float:
        return self._median(name, lambda sample: sample.p50)

    def p99(self, name: str) -> float:
        return self._median(name, lambda sample: sample.p99)

    def application(self, name: str) -> float:
        return self._median(name, lambda sample: sample.application)

    def database(self, name: str) -> float:
        return self._median(name, lambda sample: sample.database)

    def _median(self, name: str, value: Callable[[Sample], float]) -> float:
        return median(value(sample) for sample in self.samples[name])

    def ratio(
        self, ours: str, theirs: str, value: Callable[[Sample], float] = lambda s: s.rate
    ) -> float:
        """The median of the ratios of samples that were taken next to each other."""
        pairs = zip(self.samples[ours], self.samples[theirs], strict=True)
        return median(value(one) / value(other) for one, other in pairs)

    def rows(self) -> list[Row]:
        return [*self._ratios(), *self._limits(), *self._figures()]

    def _ratios(self) -> list[Row]:
        half = self.p99("half 2") / self.sync
        return [
            at_least(
                "2 workers : pgbench, a transaction for each of the two rows",
                self.ratio("ours 2", "pgbench single"),
                1.0,
            ),
            at_least(
                "1 worker : pgbench, a transaction for each of the two rows",
                self.ratio("ours 1", "pgbench single"),
                0.7,
            ),
            at_least(
                "2 workers : pgbench, two rows in one statement",
                self.ratio("ours 2", "pgbench bare"),
                1.0,
            ),
            at_least(
                "1 worker : pgbench, two rows in one statement",
                self.ratio("ours 1", "pgbench bare"),
                0.7,
            ),
            plain(
                "2 workers : pgbench, begin, two inserts, commit",
                self.ratio("ours 2", "pgbench transaction"),
            ),
            plain(
                "2 workers : pgbench, gapless numbers as in Hlas",
                self.ratio("ours 2", "pgbench gapless"),
            ),
            at_least(
                "2 workers : plain FastAPI + SQLAlchemy, 2 workers",
                self.ratio("ours 2", "plain 2"),
                10,
            ),
            at_least(
                "1 worker : plain FastAPI + SQLAlchemy, 1 worker",
                self.ratio("ours 1", "plain 1"),
                10,
            ),
            *self._shared_limits(),
            at_least("replays : first sends", self.ratio("replays", "ours 2"), 1.0),
            at_most(
                f"slowdown from 10 thousand to {self.plan.large:,} messages",
                self.ratio("small", "large"),
                1.3,
            ),
            at_most("p99 at half load : a disk sync (median)", half, 5),
            plain("p99 at half load : a disk sync (p99)", self.p99("half 2") / self.sync_p99),
            plain(
                "p99 of pgbench at half load, two rows in one statement : a disk sync (median)",
                self.p99("half pgbench bare") / self.sync,
            ),
            plain(
                "p99 of pgbench at half load, a transaction for each row : a disk sync (median)",
                self.p99("half pgbench single") / self.sync,
            ),
            at_most("application CPU of a message : of an empty POST", self._cost("empty"), 1.5),
            at_most(
                "application CPU of a message : of an empty POST past the router",
                self._cost("empty direct"),
                1.5,
            ),
        ]

    def _shared_limits(self) -> list[Row]:
        """The production configuration; there is none on a machine without Redis."""
        if not self.samples["redis 2"]:
            return []
        what = "2 workers, limits in Redis : 2 workers, limits in memory"
        return [plain(what, self.ratio("redis 2", "ours 2"))]

    def _cost(self, baseline: str) -> float:
        return self.ratio("ours 1", baseline, lambda sample: sample.application)

    def _limits(self) -> list[Row]:
        lost = 1 - self.ratio("limited", "unlimited")
        refused = self.ratio("refused", "accepted", lambda one: one.application + one.database)
        refused_session = self._total("refused sessions") / self._total("sessions")
        flood, proxied = (
            self.ratio(f"visitors in a {name}", "visitors", lambda sample: sample.p99)
            for name in ("flood", "proxied flood")
        )
        rows = [
            Row("throughput lost to rate limits", f"{lost:.1%}", "under 5%", lost < 0.05),
            at_most(
                "p99 of other visitors during a flood of refused requests : without a flood",
                flood,
                1.5,
            ),
            plain(
                "p99 of other visitors during a flood through a trusted proxy : without a flood",
                proxied,
            ),
            _under_a_third("CPU of a refused message : of an accepted one", refused),
            _under_a_third("CPU of a refused session : of an opened one", refused_session),
        ]
        few, *_, many = (
            row["us median"] for row in self.limiter if row["limiter"] == "hlas, memory"
        )
        rows.append(plain("three limits checked, 200,000 keys : ten keys", many / few))
        return rows + [_limiter_row(row) for row in self.limiter]

    def _total(self, name: str) -> float:
        return self.application(name) + self.database(name)

    def _figures(self) -> list[Row]:
        rows = [
            self._figure(f"durable messages, {text}", name)
            for text, name in (
                ("2 workers", "ours 2"),
                *([("2 workers, limits in Redis", "redis 2")] if self.samples["redis 2"] else []),
                ("1 worker", "ours 1"),
                ("1 worker, limits on", "limited"),
                ("1 worker, limits off", "unlimited"),
                ("pgbench, a transaction for each of the two rows", "pgbench single"),
                ("pgbench, two rows in one statement", "pgbench bare"),
                ("pgbench, begin, two inserts, commit", "pgbench transaction"),
                ("pgbench, gapless numbers", "pgbench gapless"),
                ("plain, 2 workers", "plain 2"),
                ("plain, 1 worker", "plain 1"),
                ("2 workers at half load", "half 2"),
                ("1 worker at half load", "half 1"),
                ("pgbench at half load, two rows in one statement", "half pgbench bare"),
                ("pgbench at half load, a transaction for each row", "half pgbench single"),
                ("2 workers, 10 thousand stored", "small"),
                (f"2 workers, {self.plan.large:,} stored", "large"),
                *(
                    (f"2 workers, {count} connections", f"ours 2 at {count}")
                    for count in self.plan.connections
                ),
                *(
                    (f"plain, 2 workers, {count} connections", f"plain 2 at {count}")
                    for count in self.plan.connections
                ),
            )
        ]
        rows += [
            self._figure(text, name)
            for text, name in (
                ("replays, 2 workers", "replays"),
                ("history pages of 50, 2 workers", "history"),
                ("sessions opened, 2 workers", "sessions"),
                ("empty POST, 1 worker", "empty"),
                ("empty POST past the router, 1 worker", "empty direct"),
                ("messages through a proxy, 1 worker", "accepted"),
                ("refused messages through a proxy, 1 worker", "refused"),
                ("refused sessions, 1 worker", "refused sessions"),
            )
        ]
        sync = f"{self.sync * 1e3:.2f} ms median, {self.sync_p99 * 1e3:.2f} ms p99"
        return [*rows, Row("a disk sync (8 kB, fdatasync)", sync)]

    def _figure(self, what: str, name: str) -> Row:
        parts = [f"{self.rate(name):,.0f}/s"]
        if self.p99(name):
            parts.append(f"p50 {self.p50(name) * 1e3:.1f} ms, p99 {self.p99(name) * 1e3:.1f} ms")
        if self.application(name):
            parts.append(f"CPU {self.application(name):.0f} + {self.database(name):.0f} us")
        elif self.database(name):
            parts.append(f"CPU {self.database(name):.0f} us in the database")
        if refused := sum(sample.refused for sample in self.samples[name]):
            parts.append(f"{refused} refused")
        return Row(what, "; ".join(parts))


def _limiter_row(row: dict[str, Any]) -> Row:
    what = f"three limits checked: {row['limiter']}, {row['keys']:,} keys, {row['at once']} at once"
    measured = f"{row['us best']} us best, {row['us median']} us median"
    if (row["limiter"], row["keys"]) == ("hlas, memory", 200_000):
        return Row(what, measured, "under 10 us", row["us median"] < 10)
    return Row(what, measured)


def table(rows: list[Row]) -> str:
    """Aligned Markdown: readable in a terminal too."""
    cells = [("", "measured", "target", "")]
    cells += [(row.what, row.measured, row.target, row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    lines = [
        "| "
        + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "| " + " | ".join("-" * max(width, 3) for width in widths) + " |")
    return "\n".join(lines)


def at_least(what: str, value: float, least: float) -> Row:
    # Rounded down, so that a figure just below its target does not look as if it met it.
    return Row(
        what, f"{math.floor(value * 100) / 100:.2f}x", f"at least {least:g}x", value >= least
    )


def at_most(what: str, value: float, most: float) -> Row:
    return Row(what, f"{math.ceil(value * 100) / 100:.2f}x", f"at most {most:g}x", value <= most)


def _under_a_third(what: str, value: float) -> Row:
    return Row(what, f"{value:.2f}x", "under 0.33x", value < 1 / 3)


def plain(what: str, value: float) -> Row:
    return Row(what, f"{value:.2f}x")
