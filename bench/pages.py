"""Writes the measured figures into the documents. README quotes docs/benchmark.md, row by row."""

from pathlib import Path

from bench import plot
from bench.capacity import scaling_figures
from bench.report import Report

ROOT = Path(__file__).parent.parent
BENCHMARK = ROOT / "docs" / "benchmark.md"
PLOT = ROOT / "docs" / "images" / "benchmark.svg"
SCALING = ROOT / "docs" / "scaling.md"
README = ROOT / "README.md"

# Parts that can be measured alone; each has a table of its own.
PARTS = ("live", "agent")

# The rows of docs/benchmark.md that README quotes.
HEADLINES = (
    "2 workers : plain FastAPI + SQLAlchemy, 2 workers",
    "2 workers : pgbench, two rows in one statement",
    "durable messages, 2 workers",
    "p99 at half load : a disk sync (median)",
)


def write(tables: dict[str, str]) -> None:
    """Replace the tables between the markers of these names."""
    for marker, text in tables.items():
        _replace(BENCHMARK, text, marker)
    quote_in_readme()


def write_report(report: Report) -> None:
    """Replace what the other pages have of a full run."""
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(plot.draw(report))
    _replace(SCALING, scaling_figures(report))


def write_comparison(measured: str) -> None:
    _replace(BENCHMARK, measured, "against")


def quote_in_readme() -> None:
    _replace(README, quote(BENCHMARK.read_text()))


def quote(benchmark: str) -> str:
    """The headline rows of the benchmark page as a table, with unchanged cells."""
    rows = {}
    for line in benchmark.splitlines():
        what, *cells = (cell.strip() for cell in line.strip("| ").split("|"))
        rows[what] = cells
    missing = [what for what in HEADLINES if what not in rows]
    if missing:
        raise SystemExit(f"docs/benchmark.md has no row {missing[0]!r}")
    lines = ["| | measured | target | |", "| --- | --- | --- | --- |"]
    for what in HEADLINES:
        measured, target, verdict, *_ = [*rows[what], "", ""]
        lines.append(f"| {what} | {measured} | {target} | {verdict} |")
    return "\n".join(lines) + "\n"


def _replace(page: Path, text: str, marker: str = "measured") -> None:
    """Replace only what is between the two markers."""
    begin, end = f"<!-- {marker} -->\n", f"<!-- /{marker} -->\n"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise SystemExit(f"{page.name} has no markers {begin.strip()} and {end.strip()}")
    page.write_text(f"{before}{begin}{text}{end}{after}")
