"""What integration tests share: a cluster for the supervisor, browsers that are closed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

import browsers
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


@pytest_asyncio.fixture(autouse=True)
async def _close_browsers() -> AsyncIterator[None]:
    yield
    while browsers.opened:
        await browsers.opened.pop().aclose()
