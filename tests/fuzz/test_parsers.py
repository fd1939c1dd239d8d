"""Edge cases 34, 38 and 39: parsers meet what nobody thought of, without a server in between."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz.targets import SEEDS, TARGETS

DRIVER = Path(__file__).with_name("drive.py")
FUZZ_SECONDS = 60
EDITS = 4


def pieces(name: str) -> SearchStrategy[bytes]:
    return st.one_of(
        st.binary(max_size=8),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from([b"9" * 5000, b"[" * 3000, b"%00", b"\xff\xfe", b"xn--", b"e999", b"::"]),
        st.sampled_from(SEEDS[name]),
    )


def histories(name: str) -> SearchStrategy[list[bytes]]:
    """Something to begin with, and what becomes of it as pieces are put in for others."""
    start = st.one_of(
        st.sampled_from(SEEDS[name]), st.binary(max_size=300), st.text().map(str.encode)
    )
    places = st.integers(0, 2**16)
    edits = st.lists(
        st.tuples(places, st.integers(0, 12), pieces(name)), min_size=EDITS, max_size=EDITS
    )
    return st.builds(_unfold, start, edits)


def _unfold(data: bytes, edits: list[tuple[int, int, bytes]]) -> list[bytes]:
    unfolded = [data]
    for place, length, piece in edits:
        start = place % (len(data) + 1)
        data = data[:start] + piece + data[start + length :]
        unfolded.append(data)
    return unfolded


def inputs(name: str) -> SearchStrategy[bytes]:
    """One of them at a time."""
    return st.builds(
        lambda history, number: history[number], histories(name), st.integers(0, EDITS)
    )


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
    """Some hundred cases of each parser, always the same."""
    explore(name, 200, derandomize=True)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TARGETS)
def test_parser_at_length(name: str) -> None:
    """The same with 20 000 of each, other ones every time."""
    explore(name, 20_000, derandomize=False)


@pytest.mark.soak
@pytest.mark.timeout(FUZZ_SECONDS + 120)
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed: make soak does")
@pytest.mark.parametrize("name", TARGETS)
def test_coverage_guided(name: str, tmp_path: Path) -> None:
    """A minute of the coverage-guided fuzzer finds nothing; what it finds is shown."""
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
