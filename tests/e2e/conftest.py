"""A real Chromium, a website on another origin, and a tenant whose website it is."""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright

from e2e.shop import Shop
from e2e.website import open_website
from factories import Live, make_site
from hlas.store.db import Database

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest_asyncio.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        await started.close()


@pytest_asyncio.fixture
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A fresh profile; its tabs share storage."""
    made = await browser.new_context(locale="en-GB")
    yield made
    await made.close()


@pytest_asyncio.fixture
async def shop(live_server: Live, operators: Database) -> AsyncIterator[Shop]:
    async with open_website() as website:
        site = await make_site(live_server, operators, website.origin, "agent")
        yield Shop(website, site, live_server, operators)
