"""A cluster of our own for the tests of the supervisor."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import clusters


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    with clusters.initialised() as path:
        yield path


@pytest.fixture
def data_dir(cluster: Path) -> Iterator[Path]:
    """One cluster for all, at rest before and after each test."""
    yield cluster
    clusters.end(cluster)
