"""Websites on loopback that tests read, well-behaved and not."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = web.StreamResponse | Callable[[web.BaseRequest], Any]


@dataclass
class Website:
    """Answers what its pages say, and remembers what it was asked for."""

    url: str = ""
    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def host(self) -> str:
        """As the operator's allow-list has it."""
        return self.url.partition("://")[2]

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        page = self.pages.get(request.path_qs, 404)
        if callable(page):
            answered: web.StreamResponse = await page(request)
            return answered
        if isinstance(page, int):
            return web.Response(status=page, text="sorry")
        if isinstance(page, str):
            return web.Response(text=page, content_type="text/html", charset="utf-8")
        body, headers = page
        return web.Response(body=body, headers=headers)


@asynccontextmanager
async def open_website(**pages: Any) -> AsyncIterator[Website]:
    website = Website()
    website.pages.update({f"/{name}": page for name, page in pages.items()})
    runner = web.ServerRunner(web.Server(website.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    website.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield website
    finally:
        await runner.cleanup()


def make_page(title: str, *pairs: tuple[str, str], links: tuple[str, ...] = ()) -> str:
    """A page of headings with text; questions among them are pairs."""
    body = "".join(f"<h2>{head}</h2><p>{text}</p>" for head, text in pairs)
    menu = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return f"<!doctype html><title>{title}</title><h1>{title}</h1><nav>{menu}</nav>{body}"


def redirect(target: str, status: int = 302) -> Any:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers={"Location": target})

    return answer


async def stream_endlessly(request: web.BaseRequest) -> web.StreamResponse:
    """As fast as it is read, without an end."""
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    while True:
        await response.write(b"<p>and so on</p>" * 4096)


async def drip(request: web.BaseRequest) -> web.StreamResponse:
    """A few bytes now and then, so that no read waits for long."""
    response = web.StreamResponse(headers={"Content-Type": "text/html"})
    await response.prepare(request)
    while True:
        await response.write(b"<p>x")
        await asyncio.sleep(0.05)


def pack(body: bytes) -> tuple[bytes, dict[str, str]]:
    return gzip.compress(body), {"Content-Type": "text/html", "Content-Encoding": "gzip"}


def make_sitemap(*urls: str, kind: str = "urlset") -> str:
    inner = "url" if kind == "urlset" else "sitemap"
    places = "".join(f"<{inner}><loc>{url}</loc></{inner}>" for url in urls)
    return f'<?xml version="1.0"?><{kind} xmlns="http://www.sitemaps.org">{places}</{kind}>'
