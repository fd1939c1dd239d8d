"""A visitor in a real browser, and the content of the widget."""

import re
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import BrowserContext, ConsoleMessage, Locator, Page, Request, expect

WATCH_POLICY = """
addEventListener("securitypolicyviolation", (event) =>
  console.error("VIOLATION " + event.violatedDirective + " " + event.blockedURI));
"""
_EXPECTED = re.compile(r"Failed to load resource")


@dataclass
class Visitor:
    page: Page
    problems: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @classmethod
    async def arrive(cls, context: BrowserContext, url: str, **options: Any) -> "Visitor":
        visitor = cls(await context.new_page())
        await visitor.page.add_init_script(WATCH_POLICY)
        visitor.page.on("console", visitor._hear)
        visitor.page.on("pageerror", lambda error: visitor.problems.append(str(error)))
        visitor.page.on("request", visitor._see)
        await visitor.page.goto(url, **options)
        await visitor.launcher.wait_for()
        return visitor

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not _EXPECTED.search(message.text):
            self.problems.append(message.text)

    def _see(self, request: Request) -> None:
        self.requests.append(request)

    @property
    def launcher(self) -> Locator:
        return self.page.locator("hlas-chat .launcher")

    @property
    def panel(self) -> Locator:
        return self.page.locator("hlas-chat dialog")

    @property
    def field(self) -> Locator:
        return self.page.locator("hlas-chat textarea")

    def rows(self, kind: str = "row") -> Locator:
        return self.page.locator(f"hlas-chat .{kind} > .bubble")

    async def open(self) -> None:
        await self.launcher.click()
        await expect(self.panel).to_be_visible()

    async def write(self, text: str) -> None:
        await self.field.fill(text)
        await self.field.press("Enter")

    async def texts(self, kind: str = "user") -> list[str]:
        return await self.rows(kind).all_inner_texts()

    async def settled(self, seconds: float = 60) -> None:
        """Wait until no message is pending and no answer is due or in progress."""
        await self.page.wait_for_function(
            """() => !Object.keys(localStorage).some((one) => /^hlas.*:out:/.test(one)) &&
              !hlas.shadowRoot.querySelector(".sending, .waiting, .typing, .stop:not([hidden])")""",
            timeout=seconds * 1000,
        )

    async def stored(self) -> dict[str, str]:
        """Everything that the browser stores for this origin."""
        return dict(await self.page.evaluate("({...localStorage, ...sessionStorage})"))

    async def session(self) -> dict[str, Any]:
        return dict(await self.page.evaluate("JSON.parse(localStorage['hlas:session'])"))


def no_problems(*visitors: Visitor) -> None:
    found = [problem for visitor in visitors for problem in visitor.problems]
    assert not found, found
