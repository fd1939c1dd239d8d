"""Measure this machine, print one table, draw one plot."""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Self

import psutil
import structlog

from bench import capacity, limits, load, machine, plot, store
from bench.report import Report, table
from bench.suite import FULL, QUICK, Suite

DOCS = Path(__file__).parent.parent / "docs"
# What a full run replaces in the documents.
BEGIN, END = "<!-- measured -->\n", "<!-- /measured -->\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two, for development")
    parser.add_argument(
        "--output", type=Path, help="where the plot goes; docs/, unless it is a quick run"
    )
    arguments = parser.parse_args()
    # As an exception it lets the servers be stopped.
    signal.signal(signal.SIGTERM, _leave)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with _Watch() as watch, store.opened() as opened:
        suite = Suite(opened, QUICK if arguments.quick else FULL)
        suite.run()
        report = Report(suite, limits.run())
    text = f"{_head(watch)}\n\n{table(report.rows())}\n"
    print(f"{text}\n{capacity.page(report)}")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "benchmark.svg").write_text(plot.draw(report))
    elif not arguments.quick:
        (DOCS / "images").mkdir(exist_ok=True)
        (DOCS / "images" / "benchmark.svg").write_text(plot.draw(report))
        _replace(DOCS / "benchmark.md", text)
        _replace(DOCS / "scaling.md", capacity.page(report))


def _head(watch: "_Watch") -> str:
    return (
        f"{machine.describe()}. Load by {load.name()}, 64 connections unless said otherwise, "
        f"{watch.seconds / 60:.0f} minutes. Other programs used {watch.others:.0%} of the "
        f"processors meanwhile, and the host took {watch.stolen:.1%}."
    )


def _replace(page: Path, measured: str) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}{measured}{END}{after}")


class _Watch:
    """How much of the machine went to others: figures from a busy machine should say so."""

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
        """What a virtual machine was ready to use and did not get."""
        return float(getattr(psutil.cpu_times(), "steal", 0.0))


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(f"stopped by signal {number}")


if __name__ == "__main__":
    main()
