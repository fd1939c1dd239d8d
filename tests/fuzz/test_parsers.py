"""Edge cases 34, 38 and 39: parsers with random input, without a server."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.inputs import EDITS, histories
from fuzz.targets import SEEDS, TARGETS

DRIVER = Path(__file__).with_name("drive.py")
FUZZ_SECONDS = 60


def explore(name: str, cases: int, *, derandomize: bool) -> None:
    @settings(
        max_examples=cases // (EDITS + 1),
        deadline=None,
        derandomize=derandomize,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(history=histories(name))
    def try_it(history: list[bytes]) -> None:
        for data in history:
            TARGETS[name](data)

    try_it()


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    """Every example of every parser is handled."""
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_parser(name: str) -> None:
    """Some hundred cases of each parser, the same in every run."""
    explore(name, 200, derandomize=True)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TARGETS)
def test_parser_at_length(name: str) -> None:
    """The same with 20 000 cases of each, different in every run."""
    explore(name, 20_000, derandomize=False)


@pytest.mark.soak
@pytest.mark.timeout(FUZZ_SECONDS + 120)
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: make soak does")
@pytest.mark.parametrize("name", TARGETS)
def test_coverage_guided(name: str, tmp_path: Path) -> None:
    """A minute of the coverage-guided fuzzer finds no crash."""
    options = [f"-max_total_time={FUZZ_SECONDS}", "-max_len=4096", "-timeout=20", "-verbosity=1"]
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    done = subprocess.run(
        [sys.executable, DRIVER, name, corpus, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    print(f"{name}: {done.stderr.strip().splitlines()[-1] if done.stderr else ''}")
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
