"""Mutations of known inputs."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz.targets import SEEDS

# The maximum number of mutations of an input.
EDITS = 4


def pieces(name: str) -> SearchStrategy[bytes]:
    return st.one_of(
        st.binary(max_size=8),
        st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.sampled_from([b"9" * 5000, b"[" * 3000, b"%00", b"\xff\xfe", b"xn--", b"e999", b"::"]),
        st.sampled_from(SEEDS[name]),
    )


def histories(name: str) -> SearchStrategy[list[bytes]]:
    """A known input, and the pieces that replace parts of it."""
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
    """Single mutated inputs."""
    return st.builds(
        lambda history, number: history[number], histories(name), st.integers(0, EDITS)
    )
