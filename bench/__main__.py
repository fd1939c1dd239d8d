"""Measure this machine, print one table, draw one plot, update the documents."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Self

import psutil

from bench import against, agent, limits, live, load, machine, pages, plot, store
from bench.capacity import scaling_figures
from bench.report import Report, Row, table
from bench.store import Store
from bench.suite import FULL, QUICK, Suite
from hlas import log


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few minutes, for development")
    parser.add_argument(
        "--output", type=Path, help="write the plot to this directory and leave docs/ unchanged"
    )
    parser.add_argument(
        "--readme",
        action="store_true",
        help="measure nothing; copy the headline rows of docs/benchmark.md into README.md",
    )
    parser.add_argument(
        "--against",
        metavar="REVISION",
        help="compare with an older revision of Hlas from git, and measure nothing else",
    )
    parser.add_argument(
        "--only", choices=pages.PARTS, help="measure this part alone, and update only its table"
    )
    arguments = parser.parse_args()
    if arguments.readme:
        pages.quote_in_readme()
        return
    # SystemExit unwinds the stack, so the servers are stopped.
    signal.signal(signal.SIGTERM, _exit_on_signal)
    log.configure("warning")
    if arguments.against:
        _compare(arguments.against, quick=arguments.quick)
        return
    names = [arguments.only] if arguments.only else list(pages.PARTS)
    report = None
    with _Watch() as watch, store.open_store() as opened:
        if not arguments.only:
            suite = Suite(opened, QUICK if arguments.quick else FULL)
            suite.run()
            report = Report(suite, limits.run())
        parts = {name: MEASURE[name](opened, arguments.quick) for name in names}
    if report:
        parts = {"measured": report.rows(), **parts}
    texts = {
        name: f"{_head(watch, is_load=name != 'agent')}\n\n{table(rows)}\n"
        for name, rows in parts.items()
    }
    print("\n".join(texts.values()))
    if report:
        print(scaling_figures(report))
    _write(report, texts, arguments.output, quick=arguments.quick)


def _write(
    report: Report | None, texts: dict[str, str], output: Path | None, *, quick: bool
) -> None:
    if output:
        if report:
            output.mkdir(parents=True, exist_ok=True)
            (output / "benchmark.svg").write_text(plot.draw(report))
    elif not quick:
        pages.write(texts)
        if report:
            pages.write_report(report)


def _measure_live(opened: Store, quick: bool) -> list[Row]:  # noqa: FBT001  # a table of functions
    return live.rows(live.run(opened, live.QUICK if quick else live.FULL))


def _measure_agent(opened: Store, quick: bool) -> list[Row]:  # noqa: FBT001  # see above
    return agent.rows(agent.run(opened, agent.QUICK if quick else agent.FULL))


MEASURE: dict[str, Callable[[Store, bool], list[Row]]] = {
    "live": _measure_live,
    "agent": _measure_agent,
}


def _compare(revision: str, *, quick: bool) -> None:
    with _Watch() as watch:
        comparison = against.run(revision, against.QUICK if quick else against.FULL)
    text = f"{_head(watch)} {comparison}\n"
    print(text)
    if not quick:
        pages.write_comparison(text)


def _head(watch: "_Watch", *, is_load: bool = True) -> str:
    by = f"Load by {load.name()}, 64 connections unless stated otherwise, " if is_load else ""
    return (
        f"{machine.describe()}. {by}{watch.seconds / 60:.0f} minutes. "
        f"Other programs used {watch.others:.0%} of the "
        f"CPU time during the run, and the hypervisor took {watch.stolen:.1%} (steal)."
    )


class _Watch:
    """Measures how much CPU other programs used, because they distort the figures."""

    def __enter__(self) -> Self:
        self._started = time.monotonic(), self._busy(), machine.processor_seconds(os.getpid())
        self._stolen = self._steal()
        return self

    def __exit__(self, *_: object) -> None:
        started, busy, ours = self._started
        self.seconds = time.monotonic() - started
        used = machine.processor_seconds(os.getpid()) - ours
        others = self._busy() - busy - used
        whole = self.seconds * (os.cpu_count() or 1)
        self.others = max(0.0, others / whole)
        self.stolen = (self._steal() - self._stolen) / whole

    def _busy(self) -> float:
        times = psutil.cpu_times()
        return float(times.user + times.system + times.nice)

    def _steal(self) -> float:
        """CPU time that the hypervisor gave to other virtual machines."""
        return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    sys.exit(f"stopped by signal {number}")


if __name__ == "__main__":
    main()
