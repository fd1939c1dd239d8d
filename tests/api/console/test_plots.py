"""Plots: correct columns, correct percentiles, and paths within the drawing."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hlas.api.console.plots import (
    HEIGHT,
    RANGES,
    Counts,
    draw_columns,
    draw_lines,
    estimate_quantile,
    round_up,
)
from hlas.observe.metrics import BUCKETS, LATENCY
from hlas.observe.traffic import Count

NOW = datetime(2026, 3, 4, 13, 37, 42, tzinfo=UTC)


def test_ranges_end_with_the_column_under_way() -> None:
    """The last column contains now, columns are adjacent, and each starts at a round time."""
    for spread in RANGES.values():
        starts = spread.starts(NOW)
        assert len(starts) == spread.columns
        assert starts[-1] <= NOW < starts[-1] + spread.step
        assert {b - a for a, b in pairwise(starts)} == {spread.step}
    assert RANGES["week"].starts(NOW)[-1].hour % 3 == 0


def test_counts_fall_into_their_columns() -> None:
    """Hours of one column are added up; older ones are omitted."""
    week = RANGES["week"]
    last = week.starts(NOW)[-1]
    rows = [
        Count(last, "message", "user", 2),
        Count(last + timedelta(hours=1), "message", "user", 3),
        Count(last - week.step, "message", "assistant", 7),
        Count(last - week.step * 100, "message", "user", 99),
    ]
    counts = Counts(rows, week, NOW)
    assert counts.of("message")[-2:] == [7, 5]
    assert sum(value or 0 for value in counts.of("message")) == 12
    assert counts.of("message", "user".__eq__)[-2:] == [0, 5]
    assert counts.of("session") == [0] * 56


def test_a_separate_series_is_not_in_the_headline() -> None:
    """A separate series is drawn and shown beside the headline; without values it is omitted."""
    starts = [NOW, NOW + timedelta(minutes=1)]
    opened, denied = ("Opened", "one", [4.0, 5.0]), ("Denied", "three", [2.0, 0.0])
    plot = draw_columns("Sessions", starts, [opened, denied], apart="Denied")  # type: ignore[list-item]  # floats are some of what may be there
    assert (plot.headline, plot.aside) == ("9", "2 denied")
    assert all(one.path for one in plot.series)
    assert draw_columns("Sessions", starts, [opened], apart="Denied").aside == ""  # type: ignore[list-item]  # as above


def test_a_value_without_neighbours_is_a_dot() -> None:
    """A single value is drawn as a dot, because a line needs two points."""
    starts = [NOW + timedelta(minutes=number) for number in range(6)]
    given: list[float | None] = [None, 5.0, None, 1.0, 1.0, None]
    (series,) = draw_lines("x", "", "", starts, [("p50", "one", given)]).series
    assert series.dots == "M15 0.00h0"
    (series,) = draw_lines(
        "x", "", "", starts, [("p50", "one", [*given[:3], 1.0, None, 0.0])]
    ).series
    assert series.dots == "M15 0.00h0M35 80.00h0M55 100.00h0"


def test_percentiles_are_read_off_the_histogram() -> None:
    """Percentiles are interpolated linearly within a bucket."""
    counts = [0] * len(BUCKETS)
    assert estimate_quantile(counts, 0.5) is None
    counts[2] = 100  # 2.5 to 5 ms
    assert estimate_quantile(counts, 0.5) == 3.75
    counts[-1] = 100  # beyond the last bound
    assert estimate_quantile(counts, 0.99) == LATENCY[-1] * 1000


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(0, 10**6))
def test_nothing_is_drawn_outside(values: list[int], more: int) -> None:
    """Stacked columns and lines stay between the bottom and the top."""
    starts = [NOW + timedelta(minutes=number) for number in range(len(values))]
    given = [("a", "one", list(values)), ("b", "two", [more] * len(values))]
    for plot in (draw_columns("x", starts, given), draw_lines("x", "", "", starts, given)):  # type: ignore[arg-type]  # ints are floats
        for series in plot.series:
            for x, y in re.findall(r"[ML]([\d.]+) ([\d.e-]+)", series.path):
                assert 0 <= float(x) <= plot.width
                assert -0.01 <= float(y) <= HEIGHT + 0.01


@given(st.floats(0.001, 1e12))
def test_round_up(value: float) -> None:
    """The result is not below the value, at most 2.5 times as high, and round."""
    top = round_up(value)
    assert value * 0.99999 <= top <= value * 2.51
    assert f"{top:e}"[0] in "125"
