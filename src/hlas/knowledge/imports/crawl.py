"""Reads the pages of a website."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from hlas.knowledge.entries import MOST_CHARACTERS, MOST_ENTRIES, KnowledgeError
from hlas.knowledge.imports import CrawlLimits, Document, Found, Page, PageGone, SiteFound
from hlas.knowledge.imports.addresses import Frontier, Site
from hlas.knowledge.imports.documents import LARGEST_DOCUMENT, DocumentReader
from hlas.knowledge.imports.fetching import Fetched, FetchFailed, RedirectRefused, fetch
from hlas.knowledge.imports.robots import LARGEST_ROBOTS, Robots, parse_robots
from hlas.knowledge.imports.sitemap import LARGEST_SITEMAP, Sitemap, parse_sitemap
from hlas.knowledge.language import Language
from hlas.outbound.client import OutboundClient
from hlas.outbound.destinations import Destination

MOST_SITEMAPS = 20

# Pages that were read before but are no longer linked; at most so many are checked.
MOST_CHECKS = 100

_PAGES = ("text/html", "application/xhtml+xml")
_GONE = {404, 410}


async def crawl(
    client: OutboundClient,
    url: str,
    limits: CrawlLimits | None = None,
    on_page: Callable[[Page], None] = lambda _page: None,
    language: Language | None = None,
    known: Sequence[str] = (),
) -> SiteFound:
    """Read the site of an address, or the pages that a sitemap lists.

    `known` are pages that were read before: those that nothing links to any more are read, too.
    Raises KnowledgeError with one line when no page can be read.
    """
    limits = limits or CrawlLimits()
    with DocumentReader() as reader:
        crawler = _Crawler(client, limits, on_page, language, reader)
        try:
            async with asyncio.timeout(limits.seconds):
                await crawler.run(url, known)
        except TimeoutError:
            crawler.warn(f"stopped after {limits.seconds:g} s")
        except FetchFailed as error:
            raise KnowledgeError(f"{url}: {error}") from None
    if not any(page.found for page in crawler.pages):
        reason = crawler.pages[0].error if crawler.pages else "no page can be read"
        raise KnowledgeError(f"{url}: {reason}")
    return SiteFound(tuple(crawler.pages), crawler.summarise(), frozenset(crawler.gone))


async def read_page(client: OutboundClient, url: str, language: Language | None = None) -> Found:
    """Read one page or document; raises KnowledgeError with one line."""
    try:
        fetched = await fetch(
            client, url, seconds=CrawlLimits().page_seconds, largest=LARGEST_DOCUMENT
        )
    except FetchFailed as error:
        raise KnowledgeError(f"{url}: {error}") from None
    if fetched.status in _GONE:
        raise PageGone(f"{url}: it does not exist (status {fetched.status})")
    if fetched.status != 200:
        raise KnowledgeError(f"{url}: it answers with status {fetched.status}")
    with DocumentReader() as reader:
        found = (await _parse(reader, fetched, language)).found
    if not found.entries:
        raise KnowledgeError(f"{url}: nothing to import: no questions and no text were found")
    return found


async def _parse(reader: DocumentReader, fetched: Fetched, language: Language | None) -> Document:
    name = fetched.url
    return await asyncio.to_thread(
        reader.read, name, fetched.body, fetched.content_type, fetched.url, language
    )


class _Crawler:
    """Reads one page after another, with a pause between requests."""

    def __init__(
        self,
        client: OutboundClient,
        limits: CrawlLimits,
        on_page: Callable[[Page], None],
        language: Language | None,
        reader: DocumentReader,
    ) -> None:
        self.pages: list[Page] = []
        self.gone: set[str] = set()
        self._client = client
        self._limits = limits
        self._on_page = on_page
        self._language = language
        self._reader = reader
        self._warnings: list[str] = []
        self._robots = Robots()
        self._pause = 0.0
        self._disallowed = 0
        self._left_out = 0
        # Counts all entries, because a tenant's number of them is limited.
        self._entries = self._characters = 0
        self._frontier: Frontier | None = None

    def warn(self, line: str) -> None:
        self._warnings.append(line)

    def summarise(self) -> tuple[str, ...]:
        lines = list(self._warnings)
        trapped = self._frontier.trapped if self._frontier else 0
        for count, reason in (
            (self._disallowed, "robots.txt does not allow them"),
            (trapped, "they look like endless variants of the same pages"),
            (self._left_out, f"at most {self._limits.pages} pages are read"),
        ):
            if count:
                lines.append(f"{count} addresses were left out: {reason}")
        return tuple(lines)

    async def run(self, url: str, known: Sequence[str]) -> None:
        site, first = await self._enter(url)
        self._frontier = frontier = Frontier(site)
        most = self._limits.pages
        sitemap = parse_sitemap(first.body)
        if sitemap is not None:
            listed = await self._read_sitemaps(site, [], sitemap)
            await self._read_all(site, listed, most)
        else:
            frontier.mark(first.url)
            links = await self._keep(site, first.url, first)
            listed = await self._find_sitemaps(site)
            # A sitemap with hardly a page was forgotten.
            if len(listed) > 1:
                await self._read_all(site, listed, most)
            else:
                await self._read_all(site, links, most, self._limits.depth)
        await self._read_all(site, known, most + MOST_CHECKS)

    async def _enter(self, url: str) -> tuple[Site, Fetched]:
        """The first page. It may redirect to the same host with www., or to https."""
        destination = Destination.parse(url)
        if destination is None:
            raise FetchFailed("it is not the address of a website")
        site = Site(destination.origin)
        self._robots = await self._read_robots(site)
        if not self._robots.allow(destination.target):
            raise FetchFailed("robots.txt does not allow reading it")
        fetched = await self._fetch(site, str(destination), LARGEST_SITEMAP)
        entered = Destination.parse(fetched.url)
        assert entered is not None
        if entered.origin != site.origin:
            site = Site(entered.origin)
            self._robots = await self._read_robots(site)
        if not self._robots.allow(entered.target):
            raise FetchFailed("robots.txt does not allow reading it")
        if fetched.status != 200:
            raise FetchFailed(f"it answers with status {fetched.status}")
        self._pause = max(self._limits.pause, self._robots.delay)
        return site, fetched

    async def _read_robots(self, site: Site) -> Robots:
        """No robots.txt allows all; one that cannot be read allows nothing (RFC 9309)."""
        try:
            fetched = await self._fetch(site, f"{site.origin}/robots.txt", LARGEST_ROBOTS)
        except RedirectRefused:
            return Robots()
        if fetched.status >= 500 or fetched.status == 429:
            raise FetchFailed(
                f"its robots.txt answers with status {fetched.status}; try again later"
            )
        return parse_robots(fetched.body) if fetched.status == 200 else Robots()

    async def _fetch(self, site: Site, url: str, largest: int) -> Fetched:
        def accept(target: str) -> bool:
            destination = Destination.parse(target)
            return destination is not None and site.has(destination.origin)

        seconds = self._limits.page_seconds
        return await fetch(self._client, url, seconds=seconds, largest=largest, accept=accept)

    async def _find_sitemaps(self, site: Site) -> list[str]:
        """Addresses in the sitemaps that robots.txt names, or in /sitemap.xml."""
        named = [*self._robots.sitemaps, f"{site.origin}/sitemap.xml"]
        return await self._read_sitemaps(site, named, Sitemap())

    async def _read_sitemaps(self, site: Site, named: list[str], first: Sitemap) -> list[str]:
        waiting = deque(dict.fromkeys([*named, *first.sitemaps]))
        seen, found = set(waiting), list(first.pages)
        read = 0
        while waiting and read < MOST_SITEMAPS:
            url = site.find(waiting.popleft())
            if url is None:
                continue
            read += 1
            await asyncio.sleep(self._pause)
            try:
                fetched = await self._fetch(site, url, LARGEST_SITEMAP)
            except FetchFailed:
                continue
            sitemap = parse_sitemap(fetched.body) if fetched.status == 200 else None
            if sitemap is not None:
                found += sitemap.pages
                waiting.extend(one for one in sitemap.sitemaps if one not in seen)
                seen.update(sitemap.sitemaps)
        # Foreign hosts are none of our business, even if a sitemap lists them.
        own = [one for one in dict.fromkeys(found) if site.find(one)]
        if len(own) < len(set(found)):
            self.warn(f"{len(set(found)) - len(own)} addresses in its sitemap are of other sites")
        return own

    async def _read_all(self, site: Site, urls: Sequence[str], most: int, depth: int = 1) -> None:
        """Read breadth-first, up to so many links from the first page."""
        assert self._frontier is not None
        waiting = deque((one, 1) for one in self._frontier.take(urls))
        while waiting and not self._is_full:
            url, distance = waiting.popleft()
            if not self._robots.allow(url.removeprefix(str(site.origin))):
                self._disallowed += 1
                continue
            if len(self.pages) >= most:
                self._left_out += 1
                continue
            await asyncio.sleep(self._pause)
            links = await self._read(site, url)
            if distance < depth:
                waiting.extend((one, distance + 1) for one in self._frontier.take(links))

    @property
    def _is_full(self) -> bool:
        return self._entries > MOST_ENTRIES or self._characters > MOST_CHARACTERS

    async def _read(self, site: Site, url: str) -> tuple[str, ...]:
        """Read a page, and return its links."""
        assert self._frontier is not None
        try:
            fetched = await self._fetch(site, url, self._limits.page_bytes)
        except FetchFailed as error:
            self._add(Page(url, error=str(error)))
            return ()
        target = site.find(fetched.url) or fetched.url
        if target != url:
            if fetched.is_moved:
                self.gone.add(url)
            if not self._frontier.mark(target):
                return ()
            if not self._robots.allow(target.removeprefix(str(site.origin))):
                self._disallowed += 1
                return ()
        return await self._keep(site, url, fetched)

    async def _keep(self, site: Site, url: str, fetched: Fetched) -> tuple[str, ...]:
        kind = fetched.content_type.partition(";")[0].strip().lower()
        if fetched.status in _GONE:
            self.gone.add(url)
        if fetched.status != 200:
            self._add(Page(url, error=f"it answers with status {fetched.status}"))
        elif len(fetched.body) > self._limits.page_bytes:
            self._add(Page(url, error=f"larger than {self._limits.page_bytes / 2**20:g} MB"))
        elif kind and kind not in _PAGES:
            self._add(Page(url, error="it is not an HTML page"))
        else:
            # The address that visitors are led to.
            shown = site.find(fetched.url) or fetched.url
            page = Fetched(shown, fetched.status, fetched.content_type or _PAGES[0], fetched.body)
            try:
                read = await _parse(self._reader, page, self._language)
            except KnowledgeError as error:
                self._add(Page(shown, error=str(error).removeprefix(f"{shown}: ")))
            else:
                self._entries += len(read.found.entries)
                self._characters += sum(one.count_characters() for one in read.found.entries)
                self._add(Page(shown, read.found))
                return read.links
        return ()

    def _add(self, page: Page) -> None:
        self.pages.append(page)
        self._on_page(page)
