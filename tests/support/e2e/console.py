"""An administrator at the console in a real browser."""

import re
from dataclasses import dataclass, field

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import BrowserContext, ConsoleMessage, Page, expect

import log_scan
from e2e.visitor import WATCH_POLICY
from factories import Live
from hlas.operators import administrators
from hlas.store.db import Database

_EXPECTED = re.compile(r"Failed to load resource")


@dataclass
class Desk:
    page: Page
    live: Live
    problems: list[str] = field(default_factory=list)

    @classmethod
    async def open(
        cls, context: BrowserContext, live: Live, operators: Database, slug: str | None = None
    ) -> "Desk":
        """Sign in with a new key; console errors of pages are recorded."""
        desk = cls(await context.new_page(), live)
        await desk.page.add_init_script(WATCH_POLICY)
        desk.page.on("console", desk._hear)
        desk.page.on("pageerror", lambda error: desk.problems.append(str(error)))
        _, key = await administrators.add(operators, "Ada", slug)
        log_scan.hear(key)
        await desk.go("")
        await desk.page.get_by_label("Admin key").fill(key)
        await desk.page.keyboard.press("Enter")
        await expect(desk.page.get_by_role("button", name="Sign out")).to_be_visible()
        return desk

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _EXPECTED.search(message.text):
            self.problems.append(message.text)

    async def go(self, path: str) -> None:
        await self.page.goto(f"{self.live.url}/console{path}")

    async def violations(self) -> list[str]:
        """Violations that axe finds; its script needs an exception in our policy."""
        results = await Axe().run(self.page)
        found = results.response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]
