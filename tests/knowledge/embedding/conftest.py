"""One embedding process with the real model for all tests of this folder."""

from collections.abc import AsyncIterator

import pytest_asyncio

from embedding import Host, run_host


@pytest_asyncio.fixture(scope="session")
async def shared_host() -> AsyncIterator[Host]:
    """Tests that stop or kill the process have one of their own."""
    async with run_host() as host:
        yield host
