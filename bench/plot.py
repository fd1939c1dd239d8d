"""The main figures as an SVG plot with a light and a dark colour scheme."""

import math
from collections.abc import Sequence
from html import escape

from bench.report import Report

WIDTH, HEIGHT = 960, 800
STYLE = """
.back { fill: #ffffff } .ink { fill: #1d2433 } .soft { fill: #667085 } .rule { stroke: #e4e7ec }
.ours { fill: #3b5bdb; stroke: #3b5bdb } .bare { fill: #0ca678; stroke: #0ca678 }
.plain { fill: #e8590c; stroke: #e8590c } .more { fill: #91a7ff; stroke: #91a7ff }
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; stroke: none !important }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 11.5px }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #8d96a0 } .rule { stroke: #2b313b }
  .ours { fill: #748ffc; stroke: #748ffc } .bare { fill: #38d9a9; stroke: #38d9a9 }
  .plain { fill: #ffa94d; stroke: #ffa94d } .more { fill: #4c63d2; stroke: #4c63d2 }
}
"""

Bar = tuple[str, str, Sequence[float]]
Line = tuple[str, str, Sequence[tuple[float, float]]]


def draw(report: Report) -> str:
    parts = [
        *_bars(24, 30, 912, "Durable messages a second, 64 connections", _throughput(report)),
        *_lines(24, 300, 436, "Messages a second by connections", _sweep(report, rate=True)),
        *_lines(500, 300, 436, "p99, milliseconds, by connections", _sweep(report, rate=False)),
        *_bars(24, 600, 436, "CPU time of a message, us: application + database", _cost(report)),
        *_bars(500, 600, 436, "Messages a second by messages stored", _sizes(report)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Benchmark of Hlas"><style>{STYLE}</style>'
        f'<rect class="back" width="{WIDTH}" height="{HEIGHT}" rx="12"/>{"".join(parts)}</svg>\n'
    )


def _throughput(report: Report) -> list[Bar]:
    return [
        (text, kind, [report.rate(name)])
        for text, kind, name in (
            ("Hlas, 2 workers", "ours", "ours 2"),
            ("Hlas, 1 worker", "ours", "ours 1"),
            ("pgbench, one statement", "bare", "pgbench bare"),
            ("pgbench, gapless", "bare", "pgbench gapless"),
            ("pgbench, 4 round trips", "bare", "pgbench transaction"),
            ("plain, 2 workers", "plain", "plain 2"),
            ("plain, 1 worker", "plain", "plain 1"),
        )
    ]


def _cost(report: Report) -> list[Bar]:
    return [
        (text, kind, [report.application(name), report.database(name)])
        for text, kind, name in (
            ("Hlas, 1 worker", "ours", "ours 1"),
            ("replay", "ours", "replays"),
            ("empty POST", "ours", "empty"),
            ("pgbench", "bare", "pgbench bare"),
            ("plain, 1 worker", "plain", "plain 1"),
        )
    ]


def _sizes(report: Report) -> list[Bar]:
    return [
        ("10 thousand", "ours", [report.rate("small")]),
        (f"{report.plan.large:,}", "ours", [report.rate("large")]),
    ]


def _sweep(report: Report, *, rate: bool) -> list[Line]:
    def points(name: str) -> list[tuple[float, float]]:
        read = report.rate if rate else lambda key: report.p99(key) * 1e3
        return [(count, read(f"{name} at {count}")) for count in report.plan.connections]

    return [("Hlas", "ours", points("ours 2")), ("plain", "plain", points("plain 2"))]


def _text(x: float, y: float, kind: str, text: str, anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _bars(x: float, y: float, width: float, title: str, bars: list[Bar]) -> list[str]:
    """Horizontal bars; the values of one bar are stacked."""
    parts = [_text(x, y, "ink title", title)]
    left, room = x + 170, width - 170 - 110
    largest = max(sum(values) for _, _, values in bars) or 1
    for number, (label, kind, values) in enumerate(bars):
        top, start = y + 16 + number * 32, left
        parts.append(_text(left - 10, top + 16, "ink", label, "end"))
        for shade, value in zip((kind, "more"), values, strict=False):
            long = value / largest * room
            parts.append(
                f'<rect class="{shade}" x="{start:.1f}" y="{top:.1f}" width="{max(long, 1):.1f}" '
                'height="22" rx="3" stroke="none"/>'
            )
            start += long
        shown = " + ".join(f"{value:,.0f}" for value in values if value)
        parts.append(_text(start + 8, top + 16, "soft", shown))
    return parts


def _lines(x: float, y: float, width: float, title: str, lines: list[Line]) -> list[str]:
    """Lines on two logarithmic axes."""
    values = [value for _, _, points in lines for _, value in points if value > 0]
    counts = [count for count, _ in lines[0][2]]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right, top, bottom = x + 48, x + width - 64, y + 20, y + 240

    def place(count: float, value: float) -> tuple[float, float]:
        across = math.log2(count / counts[0]) / (math.log2(counts[-1] / counts[0]) or 1)
        up = (math.log10(max(value, 10**low)) - low) / ((high - low) or 1)
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = [_text(x, y, "ink title", title)]
    for power in range(low, high + 1):
        _, level = place(counts[0], 10**power)
        parts.append(f'<path class="rule" d="M{left:.1f} {level:.1f}H{right:.1f}"/>')
        parts.append(_text(left - 8, level + 4, "soft small", f"{10**power:,g}", "end"))
    parts += [
        _text(place(count, 1)[0], bottom + 18, "soft small", f"{count:g}", "middle")
        for count in counts
    ]
    for label, kind, points in lines:
        spots = [place(*point) for point in points]
        path = "L".join(f"{across:.1f} {up:.1f}" for across, up in spots)
        # The class also sets a fill, which a line must not have.
        parts.append(f'<path class="{kind} line" style="fill:none" d="M{path}"/>')
        parts += [f'<circle class="{kind}" cx="{a:.1f}" cy="{u:.1f}" r="3.5"/>' for a, u in spots]
        parts.append(_text(spots[-1][0] + 10, spots[-1][1] + 4, f"{kind} small", label))
    return parts
