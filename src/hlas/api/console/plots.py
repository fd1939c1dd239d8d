"""Plots: columns and lines as SVG paths, ready for the page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from hlas.api.console import pages
from hlas.observe.metrics import BUCKETS, LATENCY
from hlas.observe.traffic import Count, Span

RangeName = Literal["hour", "day", "week"]

# Units of the drawing, which is stretched to the page: a column's width, the height, the gap.
WIDTH, HEIGHT, GAP = 10, 100, 2


@dataclass(frozen=True, slots=True)
class Range:
    """A period that is plotted, in columns of `step`."""

    name: RangeName
    title: str
    span: Span
    step: timedelta
    columns: int

    def starts(self, now: datetime) -> list[datetime]:
        """The start of each column; the last one is not over yet."""
        step = self.step.total_seconds()
        last = datetime.fromtimestamp(now.timestamp() // step * step, UTC)
        return [last - self.step * (self.columns - 1 - number) for number in range(self.columns)]


RANGES: dict[str, Range] = {
    "hour": Range("hour", "Last hour", "minute", timedelta(minutes=1), 60),
    "day": Range("day", "Last day", "hour", timedelta(hours=1), 24),
    "week": Range("week", "Last week", "hour", timedelta(hours=3), 56),
}


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    # The name of the colour in the style sheet.
    tone: str
    values: list[float | None]
    path: str = ""
    # Of a line: single values between gaps, where no line would be visible.
    dots: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    headline: str
    kind: Literal["columns", "lines"]
    unit: str
    starts: list[datetime]
    series: list[Series]
    top: float
    # In small print beside the headline.
    aside: str = ""
    # How the starts are shown: as times, or as days in UTC.
    form: Literal["clock", "day"] = "clock"

    @property
    def width(self) -> int:
        return len(self.starts) * WIDTH

    @property
    def is_empty(self) -> bool:
        return not any(value for one in self.series for value in one.values)

    @property
    def labels(self) -> list[datetime]:
        """The times under the plot."""
        last = len(self.starts) - 1
        return [self.starts[round(last * part / 4)] for part in range(5)]

    def rows(self) -> list[tuple[datetime, list[float | None]]]:
        """The figures of the plot, newest first, without empty columns."""
        found = [
            (start, [one.values[number] for one in self.series])
            for number, start in enumerate(self.starts)
        ]
        return [row for row in reversed(found) if any(row[1])]

    def hint(self, number: int) -> str:
        parts = [
            f"{one.name}: {_figure(one.values[number])}{self.unit}"
            for one in self.series
            if one.values[number]
        ]
        return ", ".join(parts) or "nothing"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


class Counts:
    """The counts in each column of a range."""

    def __init__(self, counted: Sequence[Count], spread: Range, now: datetime) -> None:
        self.starts = spread.starts(now)
        step = spread.step.total_seconds()
        first = self.starts[0].timestamp()
        self._columns: dict[tuple[str, str], list[int]] = {}
        for one in counted:
            number = int((one.start.timestamp() - first) // step)
            if 0 <= number < len(self.starts):
                empty = [0] * len(self.starts)
                column = self._columns.setdefault((one.kind, one.detail), empty)
                column[number] += one.count

    def of(self, kind: str, wanted: Callable[[str], bool] = lambda _: True) -> list[float | None]:
        total: list[float | None] = [0] * len(self.starts)
        for (found, detail), column in self._columns.items():
            if found == kind and wanted(detail):
                total = [(a or 0) + b for a, b in zip(total, column, strict=True)]
        return total

    def details(self, kind: str) -> list[str]:
        return sorted(detail for found, detail in self._columns if found == kind)

    def quantile(self, part: float) -> list[float | None]:
        """Latency quantile in milliseconds, for each column."""
        columns = [self.of("latency", name.__eq__) for name in BUCKETS]
        return [
            estimate_quantile([int(column[number] or 0) for column in columns], part)
            for number in range(len(self.starts))
        ]


def estimate_quantile(counts: Sequence[int], part: float) -> float | None:
    """A quantile of a histogram in milliseconds, by linear interpolation within its bucket."""
    wanted = sum(counts) * part
    if not wanted:
        return None
    seen = 0
    bounds = (0.0, *LATENCY)
    for number, count in enumerate(counts):
        if count and seen + count >= wanted:
            low = bounds[min(number, len(LATENCY))]
            high = bounds[min(number + 1, len(LATENCY))]
            return round((low + (high - low) * (wanted - seen) / count) * 1000, 2)
        seen += count
    return None


def draw_columns(
    title: str,
    starts: list[datetime],
    given: Sequence[tuple[str, str, list[float | None]]],
    *,
    apart: str = "",
) -> Plot:
    """Stacked columns; the headline counts all series but `apart`."""
    base: list[float] = [0.0] * len(starts)
    heights = [sum(values[number] or 0 for _, _, values in given) for number in range(len(starts))]
    top = round_up(max(heights, default=0))
    series = []
    for name, tone, values in given:
        parts = []
        for number, value in enumerate(values):
            if value:
                x, y = number * WIDTH + GAP / 2, HEIGHT * (1 - base[number] / top)
                tall = HEIGHT * value / top
                parts.append(f"M{x:g} {y:.2f}h{WIDTH - GAP}v-{tall:.2f}h-{WIDTH - GAP}z")
                base[number] += value
        series.append(Series(name, tone, values, "".join(parts)))
    aside = sum(value or 0 for one in series if one.name == apart for value in one.values)
    return Plot(
        title=title,
        headline=pages.thousands(sum(heights) - aside),
        kind="columns",
        unit="",
        starts=starts,
        series=series,
        top=top,
        aside=f"{pages.thousands(aside)} {apart.lower()}" if aside else "",
    )


def draw_lines(
    title: str,
    headline: str,
    unit: str,
    starts: list[datetime],
    given: Sequence[tuple[str, str, list[float | None]]],
) -> Plot:
    """Lines with gaps where there is no value, and dots for single values."""
    top = round_up(max((value or 0 for _, _, values in given for value in values), default=0))
    series = []
    for name, tone, values in given:
        parts, dots, drawing = [], [], False
        for number, value in enumerate(values):
            if value is None:
                drawing = False
                continue
            place = f"{number * WIDTH + WIDTH / 2:g} {HEIGHT * (1 - value / top):.2f}"
            parts.append(f"L{place}" if drawing else f"M{place}")
            following = values[number + 1 : number + 2]
            if not drawing and following in ([], [None]):
                dots.append(f"M{place}h0")
            drawing = True
        series.append(Series(name, tone, values, "".join(parts), "".join(dots)))
    return Plot(title, headline, "lines", unit, starts, series, top)


def round_up(value: float) -> float:
    """The next larger number of the form 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1
    power: float = 10 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * 0.999999)
