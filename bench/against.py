"""This code side by side with an older revision, each with its own database server.

The older one runs from its own sources in the environment of this one, so it must be a revision
whose dependencies are installed, and which has the same routes and columns.
"""

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from bench import load, service, store
from bench.store import Conversation
from bench.trial import Sample, Target

ROOT = Path(__file__).parent.parent
HLAS = Path(sys.executable).with_name("hlas")
DATABASE = "compared"
CONVERSATIONS = 256
# More than one page of history.
MESSAGES_EACH = 60
PAIR = ("new", "old")
MESSAGES = "durable messages"
# Of the throughput of messages before.
KEPT = 0.95
VALUES = (attrgetter("rate"), attrgetter("application"), attrgetter("database"))


@dataclass(frozen=True)
class Plan:
    rounds: int
    seconds: float


FULL = Plan(rounds=5, seconds=3)
QUICK = Plan(rounds=1, seconds=1)

WORK: dict[str, Callable[[list[Conversation]], list[str]]] = {
    MESSAGES: load.sends,
    "history pages": load.history_reads,
    "sessions opened": load.session_opens,
}


def run(revision: str, plan: Plan) -> str:
    """Measure both revisions; returns a sentence and a table."""
    commit = _git("rev-parse", "--short", f"{revision}^{{commit}}").decode().strip()
    with ExitStack() as stack:
        sides = {}
        for name in PAIR:
            opened = stack.enter_context(store.open_store())
            source = ROOT if name == "new" else _check_out(commit, opened.directory.parent)
            sides[name] = _Side(stack, opened, source / "src")
        samples = _take_turns(sides, plan)
        starts = {name: _median_start(side, plan.rounds) for name, side in sides.items()}
    rows = [_row(what, pairs) for what, pairs in samples.items()]
    kept = min(
        median(pair["new"].rate / pair["old"].rate for pair in pairs)
        for what, pairs in samples.items()
        if what.startswith(MESSAGES)
    )
    used = starts["new"], starts["old"]
    rows.append(
        f"| `hlas --version` | {used[0]:.2f} s | {used[1]:.2f} s | | {used[0] / used[1]:.2f}x | |"
    )
    return (
        f"Compared with {commit}: 2 workers and a database server each, in {plan.rounds} rounds of "
        f"alternating turns of {plan.seconds:.0f} s. A ratio is *new : old*, the median of the "
        "rounds. CPU is per request, application + database; of `hlas --version` "
        "it is the whole.\n\n"
        "| | new | old | requests a second | application CPU | database CPU |\n"
        "| --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n\n"
        f"Messages a second, without runs: {kept:.2f}x at the least; the goal is at least {KEPT}x: "
        f"{'met' if kept >= KEPT else '**missed**'}."
    )


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def _check_out(commit: str, parent: Path) -> Path:
    directory = parent / "older"
    directory.mkdir()
    archive = _git("archive", commit)
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive, check=True)
    return directory


class _Side:
    """One of the two revisions, with limits in memory and, if Redis is installed, in Redis."""

    def __init__(self, stack: ExitStack, opened: store.Store, source: Path) -> None:
        url = opened.url(DATABASE)
        self.variables = service.environment(url, PYTHONPATH=str(source))
        self._require(source)
        opened.run("postgres", f"create database {DATABASE} owner hlas_owner")
        self.hlas("migrate")
        opened.fill(DATABASE, CONVERSATIONS * MESSAGES_EACH, MESSAGES_EACH)
        self.conversations = opened.conversations(DATABASE, CONVERSATIONS)
        changes = {"limits in memory": {"PYTHONPATH": str(source)}}
        if service.REDIS:
            redis = stack.enter_context(service.run_redis())
            changes["limits in Redis"] = {"PYTHONPATH": str(source), "REDIS_URL": redis}
        self.targets = {}
        for limits, changed in changes.items():
            served = stack.enter_context(service.serve_hlas(opened.directory, url, 2, **changed))
            self.targets[limits] = Target(served, opened, DATABASE, self.conversations)
            load.run(served.port, load.sends(self.conversations), connections=64, seconds=2)

    def hlas(self, *arguments: str) -> None:
        command = [str(HLAS), *arguments]
        subprocess.run(command, env=self.variables, stdout=subprocess.DEVNULL, check=True)

    def _require(self, source: Path) -> None:
        """Check the path: an installed copy would be compared with itself."""
        command = [sys.executable, "-c", "import hlas; print(hlas.__file__)"]
        found = subprocess.run(command, env=self.variables, stdout=subprocess.PIPE, check=True)
        if not Path(os.fsdecode(found.stdout)).is_relative_to(source):
            raise RuntimeError(f"{source} is not what runs, but {found.stdout!r}")


Pairs = list[dict[str, Sample]]


def _take_turns(sides: dict[str, _Side], plan: Plan) -> dict[str, Pairs]:
    """Take samples in turns; the order is reversed in every round."""
    samples: dict[str, Pairs] = defaultdict(list)
    for number in range(plan.rounds):
        order = PAIR if number % 2 == 0 else PAIR[::-1]
        for limits in sides["new"].targets:
            for what, requests in WORK.items():
                pair = {}
                for name in order:
                    side = sides[name]
                    pair[name] = side.targets[limits].run(
                        requests(side.conversations),
                        seconds=plan.seconds,
                        writes=requests is load.sends,
                    )
                samples[f"{what}, {limits}"].append(pair)
                _say(f"round {number + 1}, {what}, {limits}", pair)
    return samples


def _say(what: str, pair: dict[str, Sample]) -> None:
    rates = ", ".join(f"{name} {pair[name].rate:,.0f}/s" for name in PAIR)
    print(f"  {what}: {rates}", file=sys.stderr, flush=True)


def _median_start(side: _Side, rounds: int) -> float:
    """Seconds of CPU that `hlas --version` takes."""
    times = []
    for _ in range(rounds):
        before = getrusage(RUSAGE_CHILDREN)
        side.hlas("--version")
        after = getrusage(RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(times)


def _row(what: str, pairs: Pairs) -> str:
    if refused := sum(sample.refused for pair in pairs for sample in pair.values()):
        raise RuntimeError(f"{what}: {refused} were refused")
    figures = (_figure([pair[name] for pair in pairs]) for name in PAIR)
    ratios = (
        f"{median(value(pair['new']) / value(pair['old']) for pair in pairs):.2f}x"
        for value in VALUES
    )
    return f"| {' | '.join([what, *figures, *ratios])} |"


def _figure(samples: list[Sample]) -> str:
    rate, application, database = (median(map(value, samples)) for value in VALUES)
    return f"{rate:,.0f}/s; CPU {application:.0f} + {database:.0f} us"
