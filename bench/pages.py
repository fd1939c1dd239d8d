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

# Only the text between these markers is replaced.
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"

# The rows of docs/benchmark.md that README quotes.
HEADLINES = (
    "2 workers : plain FastAPI + SQLAlchemy, 2 workers",
    "2 workers : pgbench, two rows in one statement",
    "durable messages, 2 workers",
    "p99 at half load : a disk sync (median)",
)


def write(report: Report, measured: str) -> None:
    """Replace every measured figure in the documents."""
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(plot.draw(report))
    _replace(BENCHMARK, measured)
    _replace(SCALING, scaling_figures(report))
    quote_in_readme()


def quote_in_readme() -> None:
    _replace(README, quote(BENCHMARK.read_text()))


def quote(benchmark: str) -> str:
    """The headline rows of the benchmark page as a table, cell by cell as they stand there."""
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


def _replace(page: Path, measured: str) -> None:
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page.name} has no markers {BEGIN.strip()} and {END.strip()}")
    page.write_text(f"{before}{BEGIN}{measured}{END}{after}")
