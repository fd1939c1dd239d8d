"""A site owner's website: pages on another origin than the API, with any policy and markup."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Website:
    origin: str
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)

    def put(self, path: str, html: str, policy: str = "") -> str:
        """Publish a page under a content security policy; returns its address."""
        self.pages[path] = (html, policy)
        return self.origin + path

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ")[1].decode().partition("?")[0]
            html, policy = self.pages.get(path, ("", ""))
            body = html.encode()
            lines = [
                "HTTP/1.1 200 OK" if path in self.pages else "HTTP/1.1 404 Not Found",
                "Content-Type: text/html; charset=utf-8",
                f"Content-Length: {len(body)}",
                "Connection: close",
            ]
            if policy:
                lines.append(f"Content-Security-Policy: {policy}")
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # browsers open connections that they do not use
        finally:
            writer.close()


@asynccontextmanager
async def open_website() -> AsyncIterator[Website]:
    website = Website("")
    server = await asyncio.start_server(website.serve, "127.0.0.1", 0)
    # Another host name than the API's 127.0.0.1, so that it is cross-site.
    website.origin = f"http://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield website
    finally:
        server.close()
