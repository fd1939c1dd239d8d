"""Measure this machine, print one table, draw one plot, update the documents."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Self

import psutil

from bench import against, limits, live, load, machine, pages, plot, store
from bench.capacity import scaling_figures
from bench.report import Report, table
from bench.suite import FULL, QUICK, Suite
from hlas import log


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one or two minutes, for development")
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
    with _Watch() as watch, store.open_store() as opened:
        suite = Suite(opened, QUICK if arguments.quick else FULL)
        suite.run()
        report = Report(suite, limits.run())
        figures = live.run(opened, live.QUICK if arguments.quick else live.FULL)
    text = f"{_head(watch)}\n\n{table([*report.rows(), *live.rows(figures)])}\n"
    print(f"{text}\n{scaling_figures(report)}")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "benchmark.svg").write_text(plot.draw(report))
    elif not arguments.quick:
        pages.write(report, text)


def _compare(revision: str, *, quick: bool) -> None:
    with _Watch() as watch:
        comparison = against.run(revision, against.QUICK if quick else against.FULL)
    text = f"{_head(watch)} {comparison}\n"
    print(text)
    if not quick:
        pages.write_comparison(text)


def _head(watch: "_Watch") -> str:
    return (
        f"{machine.describe()}. Load by {load.name()}, 64 connections unless stated otherwise, "
        f"{watch.seconds / 60:.0f} minutes. Other programs used {watch.others:.0%} of the "
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
