"""Fetches pages of websites: follows redirects, waits when it is asked to."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin

from hlas.knowledge.imports.sitemap import unpack
from hlas.outbound.client import OutboundClient, OutboundError
from hlas.outbound.destinations import Destination

MOST_REDIRECTS = 5
# A site that asks for a longer pause is not waited for.
LONGEST_WAIT = 10.0

_REDIRECTS = {301, 302, 303, 307, 308}
_PERMANENT = {301, 308}
_BUSY = {429, 503}


class FetchFailed(Exception):
    """An address was not read; the message is one line that says why."""


class RedirectRefused(FetchFailed):
    """It redirects to an address that is not wanted."""

    def __init__(self, url: str) -> None:
        destination = Destination.parse(url)
        where = f", {destination.origin.host}" if destination else ""
        super().__init__(f"redirects to another site{where}")


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str
    status: int
    content_type: str
    body: bytes
    # Whether a redirect led here for good; a temporary one says nothing about the page.
    is_moved: bool = False


async def fetch(
    client: OutboundClient,
    url: str,
    *,
    seconds: float,
    largest: int,
    accept: Callable[[str], bool] = lambda _url: True,
) -> Fetched:
    """Get an address. Each redirect is checked like the address itself, and must be accepted."""
    waited = is_moved = False
    for _ in range(MOST_REDIRECTS + 2):
        fetched, location, wait = await _ask(client, url, seconds, largest)
        if wait is not None and not waited:
            waited = True
            await asyncio.sleep(wait)
        elif location:
            url = _join(fetched.url, location)
            is_moved = is_moved or fetched.status in _PERMANENT
            if not accept(url):
                raise RedirectRefused(url)
        else:
            return replace(fetched, is_moved=is_moved)
    raise FetchFailed("redirects too many times")


async def _ask(
    client: OutboundClient, url: str, seconds: float, largest: int
) -> tuple[Fetched, str, float | None]:
    """The response, where it redirects to, and how long it asks us to wait."""
    url = _upgrade(client, url)
    # A name alone would be compared with robots.txt under another one.
    headers = {"User-Agent": "hlas", "Accept": "text/html,*/*;q=0.5"}
    try:
        async with client.request(
            "GET", url, headers=headers, seconds=seconds, largest=largest, as_is=True
        ) as response:
            head = response.headers
            length = head.get("Content-Length", "")
            if length.isdigit() and int(length) > largest:
                raise FetchFailed(f"larger than {_in_megabytes(largest)}")
            status = response.status
            if status in _REDIRECTS and "Location" in head:
                return Fetched(url, status, "", b""), head["Location"], None
            if status in _BUSY and "Retry-After" in head:
                return Fetched(url, status, "", b""), "", _read_wait(head["Retry-After"])
            body = await response.read() if status == 200 else b""
            encoding = head.get("Content-Encoding", "identity").lower()
    except OutboundError as error:
        reason = f"larger than {_in_megabytes(largest)}" if error.code == "too_large" else error
        raise FetchFailed(f"{reason}") from None
    if encoding in {"gzip", "x-gzip"}:
        body = unpack(body, largest + 1)
        if len(body) > largest:
            raise FetchFailed(f"larger than {_in_megabytes(largest)}")
    elif encoding != "identity":
        raise FetchFailed("unsupported Content-Encoding")
    return Fetched(url, status, head.get("Content-Type", ""), body), "", None


def _upgrade(client: OutboundClient, url: str) -> str:
    """Public sites are read over https only: others could change what they say on the way."""
    destination = Destination.parse(url)
    if destination is not None and destination.origin.scheme == "http":
        try:
            client.require(url)
        except OutboundError:
            return "https" + url[4:]
    return url


def _join(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError:
        raise FetchFailed("redirects to an invalid address") from None


def _read_wait(text: str) -> float:
    """Seconds, or a date."""
    try:
        seconds = float(text) if text.isdigit() else parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 5.0
    wait = max(0.0, seconds if text.isdigit() else seconds - time.time())
    if wait > LONGEST_WAIT:
        raise FetchFailed(f"asks to retry in {wait:.0f} s")
    return wait


def _in_megabytes(size: int) -> str:
    return f"{size / 2**20:g} MB"
