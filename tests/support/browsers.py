"""A minimal browser without rendering, for the pages of the console."""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx

import log_scan
from administration import make_desk
from factories import Live
from hlas.store.db import Database

TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


@dataclass
class Browser:
    """Keeps cookies and submits forms."""

    client: httpx.AsyncClient
    token: str = ""

    async def get(self, path: str, **options: Any) -> httpx.Response:
        answer = await self.client.get(f"/console{path}", **options)
        found = TOKEN.search(answer.text)
        self.token = found[1] if found else self.token
        return answer

    async def post(self, path: str, token: str | None = None, **fields: str) -> httpx.Response:
        sent = {"form_token": self.token if token is None else token, **fields}
        return await self.client.post(
            f"/console{path}",
            content=urlencode(sent),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )

    async def upload(self, path: str, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
        """Submit a form with files."""
        return await self.client.post(
            f"/console{path}",
            data={"form_token": self.token, **fields},
            files=[("files", (name, data)) for name, data in files] or [("files", ("", b""))],
        )

    async def sign_in(self, key: str) -> httpx.Response:
        log_scan.hear(key)
        await self.get("/sign-in")
        answer = await self.post("/sign-in", key=key)
        if answer.status_code == 303:
            await self.get("/tenants")
        return answer


opened: list[httpx.AsyncClient] = []


async def make_browser(
    live: Live, operators: Database | None = None, slug: str | None = None
) -> Browser:
    """Create a browser, signed in if a database of operators is given."""
    browser = Browser(httpx.AsyncClient(base_url=live.url, timeout=20))
    opened.append(browser.client)
    if operators is not None:
        desk = await make_desk(live, operators, slug)
        assert (await browser.sign_in(desk.key)).status_code == 303
    return browser
