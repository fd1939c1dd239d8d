"""Websites are read politely, within bounds, whatever traps they have."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from documents import Line, make_pdf
from hlas.knowledge.entries import KnowledgeError
from hlas.knowledge.imports import CrawlLimits, Page, PageGone, SiteFound
from hlas.knowledge.imports.crawl import crawl, read_page
from hlas.outbound.client import OutboundClient
from websites import (
    Website,
    drip,
    make_page,
    make_sitemap,
    open_website,
    pack,
    redirect,
    stream_endlessly,
)

LIMITS = CrawlLimits(pause=0, page_seconds=3)
TEXT = "We are open every day from 8 to 18, also on holidays."


@pytest_asyncio.fixture
async def website() -> AsyncIterator[Website]:
    async with open_website() as opened:
        yield opened


@pytest_asyncio.fixture
async def client(website: Website) -> AsyncIterator[OutboundClient]:
    """The operator allows this website, and nothing else that is private."""
    made = OutboundClient(frozenset({website.host}))
    yield made
    await made.close()


def errors_of(found: SiteFound, website: Website) -> dict[str, str]:
    return {page.url.removeprefix(website.url): page.error for page in found.pages if page.error}


def paths_of(found: SiteFound, website: Website) -> list[str]:
    return [page.url.removeprefix(website.url) for page in found.pages if page.found]


async def test_sitemap_with_traps(website: Website, client: OutboundClient) -> None:
    """Thirty pages of a sitemap are read; each trap is an error of its own, and none stops it."""
    async with open_website(secret=make_page("Secret")) as other:
        names = [f"topic-{number}" for number in range(30)]
        traps = {
            "loop-a": redirect("/loop-b"),
            "loop-b": redirect("/loop-a"),
            "self": redirect("/self"),
            "large": "<p>" + "x" * 10 * 2**20,
            "endless": stream_endlessly,
            "drip": drip,
            "private": redirect(f"{other.url}/secret"),
            "file": redirect("file:///etc/passwd"),
            "bomb": pack(b"a" * 100_000_000),
            "packed": pack(make_page("Packed", ("Is it packed?", "Yes, by gzip.")).encode()),
            "brotli": (b"x", {"Content-Type": "text/html", "Content-Encoding": "br"}),
            "lying": (
                make_page("Lhaní", ("Jak žluťoučký kůň šeptá?", "Příliš často.")).encode("cp1250"),
                {"Content-Type": "text/html; charset=utf-8"},
            ),
            "broken": 500,
            "missing": 404,
            "picture": (b"\x89PNG\r\n\x1a\n\0\0", {"Content-Type": "image/png"}),
            "disguised": (b"\x89PNG\r\n\x1a\n\0\0", {"Content-Type": "text/html"}),
            "forbidden/page": make_page("No", ("Is this read?", "It must not be.")),
        }
        for number, name in enumerate(names):
            website.pages[f"/{name}"] = make_page(name, (f"What is {name}?", f"It is {number}."))
        website.pages |= {f"/{name}": page for name, page in traps.items()}
        urls = [f"{website.url}/{name}" for name in (*names, *traps)]
        listed = make_sitemap(*urls, "https://elsewhere.example/", f"{website.url}/topic-1#again")
        website.pages |= {
            "/": make_page("Home", ("Opening hours", TEXT)),
            "/robots.txt": (
                f"User-agent: *\nDisallow: /forbidden/\nSitemap: {website.url}/index.xml".encode(),
                {"Content-Type": "text/plain"},
            ),
            "/index.xml": make_sitemap(
                f"{website.url}/all.xml.gz", f"{website.url}/index.xml", kind="sitemapindex"
            ),
            "/all.xml.gz": (gzip.compress(listed.encode()), {"Content-Type": "application/gzip"}),
        }
        told: list[Page] = []
        found = await crawl(client, website.url, LIMITS, told.append)

    assert sorted(paths_of(found, website)) == sorted(
        ["/", "/packed", "/lying", *(f"/{name}" for name in names)]
    )
    assert errors_of(found, website) == {
        "/loop-a": "redirects too many times",
        "/loop-b": "redirects too many times",
        "/self": "redirects too many times",
        "/large": "larger than 2 MB",
        "/endless": "larger than 2 MB",
        "/drip": "no complete answer within 3 s",
        "/private": "redirects to another site, 127.0.0.1",
        "/file": "redirects to another site",
        "/bomb": "larger than 2 MB",
        "/brotli": "unsupported Content-Encoding",
        "/broken": "it answers with status 500",
        "/missing": "it answers with status 404",
        "/picture": "it is not an HTML page",
        "/disguised": "not a text file",
    }
    assert found.warnings == (
        "1 addresses in its sitemap are of other sites",
        "1 addresses were left out: robots.txt does not allow them",
    )
    assert other.asked == []
    assert "/forbidden/page" not in website.asked
    assert website.asked[0] == "/robots.txt"
    assert len(told) == len(found.pages) == 47
    assert found.gone == {f"{website.url}/missing"}
    pairs = {one.question: (one.kind, one.answer, one.url) for one in found.entries}
    assert len(pairs) == 33
    assert pairs["What is topic-7?"] == ("answer", "It is 7.", f"{website.url}/topic-7")
    assert pairs["Opening hours"] == ("passage", TEXT, f"{website.url}/")
    assert pairs["Jak žluťoučký kůň šeptá?"][1] == "Příliš často."


async def test_links_with_traps(website: Website, client: OutboundClient) -> None:
    """Without a sitemap, links are followed, each page is read once, and mazes have an end."""
    website.pages |= {
        "/": make_page("Home", links=("/a", "/b?utm_source=x", "/b", "/login", "/c.jpg", "/old")),
        "/a": make_page("A", ("What is A?", "A letter."), links=("/b", "/a#part", "/a?share=1")),
        "/b": make_page("B", ("What is B?", "A letter, too."), links=("/a", "/", "/deep/1/1")),
        "/old": redirect("/a", 301),
    }
    for number in range(1, 200):
        links = (f"/deep/{number + 1}/1", f"/deep/{number + 1}/2")
        for variant in (1, 2):
            website.pages[f"/deep/{number}/{variant}"] = make_page("Deep", links=links)
    found = await crawl(client, website.url, LIMITS)
    assert {"/", "/a", "/b"} <= set(paths_of(found, website))
    # Five levels of links, of which /b is the first.
    assert {path for path in website.asked if path > "/deep/4"} == {
        "/deep/4/1",
        "/deep/4/2",
        "/old",
        "/robots.txt",
        "/sitemap.xml",
    }
    # Once more as the target of /old.
    again = [path for path in set(website.asked) if website.asked.count(path) > 1]
    assert again == ["/a"]
    assert found.gone == {f"{website.url}/old"}
    shallow = await crawl(client, website.url, CrawlLimits(pause=0, depth=100))
    assert len(shallow.pages) < 70
    assert "look like endless variants" in shallow.warnings[0]


async def test_most_pages(website: Website, client: OutboundClient) -> None:
    """No more pages are read than wanted, the most useful first; the rest is counted."""
    names = ["aktuality", "galerie", "kontakt", "faq", "historie"]
    website.pages["/"] = make_page("Home", links=tuple(f"/{name}" for name in names))
    for name in names:
        website.pages[f"/{name}"] = make_page(name, (f"What is {name}?", "A page."))
    found = await crawl(client, website.url, CrawlLimits(pause=0, pages=3))
    assert paths_of(found, website) == ["/", "/kontakt", "/faq"]
    assert found.warnings == ("3 addresses were left out: at most 3 pages are read",)


async def test_time_is_up(website: Website, client: OutboundClient) -> None:
    """When the time is up, what was read until then counts."""
    website.pages |= {"/": make_page("Home", ("When?", TEXT), links=("/drip",)), "/drip": drip}
    found = await crawl(client, website.url, CrawlLimits(pause=0, seconds=5, page_seconds=60))
    assert paths_of(found, website) == ["/"]
    assert found.warnings == ("stopped after 5 s",)


async def test_more_than_a_tenant_can_have(website: Website, client: OutboundClient) -> None:
    """Reading stops at more text than can be saved."""
    many = "".join(f"<h2>Why {number}?</h2><p>Therefore.</p>" for number in range(2600))
    for number in range(5):
        page = many.replace("Why", f"Why {number}")
        website.pages[f"/{number}"] = f"<!doctype html><h1>Page</h1>{page}"
    website.pages["/"] = make_page("Home", links=tuple(f"/{number}" for number in range(5)))
    found = await crawl(client, website.url, LIMITS)
    assert paths_of(found, website) == ["/", "/0", "/1"]


@pytest.mark.parametrize(
    ("robots", "home", "reason"),
    [
        (b"User-agent: *\nDisallow: /", "page", "robots.txt does not allow reading it"),
        (b"User-agent: Hlas\nDisallow: /", "page", "robots.txt does not allow reading it"),
        (503, "page", "its robots.txt answers with status 503; try again later"),
        (404, 404, "it answers with status 404"),
        (
            404,
            redirect("https://elsewhere.example/"),
            "redirects to another site, elsewhere.example",
        ),
        (404, (b"{}", {"Content-Type": "application/json"}), "it is not an HTML page"),
        (404, stream_endlessly, "larger than 10 MB"),
    ],
)
async def test_nothing_is_read(
    website: Website, client: OutboundClient, robots: object, home: object, reason: str
) -> None:
    """A site that cannot or may not be read is an error of one line."""
    plain = {"Content-Type": "text/plain"}
    website.pages["/robots.txt"] = (robots, plain) if isinstance(robots, bytes) else robots
    website.pages["/"] = make_page("Home", ("When?", TEXT)) if home == "page" else home
    with pytest.raises(KnowledgeError) as caught:
        await crawl(client, f"{website.url}/", LIMITS)
    assert str(caught.value) == f"{website.url}/: {reason}"
    if home == "page":
        assert website.asked == ["/robots.txt"]


async def test_polite_pauses(
    website: Website, client: OutboundClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a pause before each page, as long as robots.txt asks; Retry-After is obeyed once."""
    website.pages |= {
        "/robots.txt": (b"User-agent: *\nCrawl-delay: 7", {"Content-Type": "text/plain"}),
        "/": make_page("Home", ("When?", TEXT), links=("/busy", "/closed")),
    }

    async def refuse(seconds: str) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": seconds})

    website.pages["/busy"] = lambda _: refuse("3")
    website.pages["/closed"] = lambda _: refuse("3600")
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("hlas.knowledge.imports.crawl.asyncio.sleep", sleep)
    found = await crawl(client, website.url, CrawlLimits(pause=0.5))
    # The sitemap, two pages, and the first page that was busy.
    assert sorted(slept) == [3, 7, 7, 7]
    assert errors_of(found, website) == {
        "/busy": "it answers with status 503",
        "/closed": "asks to retry in 3600 s",
    }


async def test_pages_read_before(website: Website, client: OutboundClient) -> None:
    """Pages that nothing links to any more are read again; those of other sites never are."""
    async with open_website(x=make_page("Other")) as other:
        website.pages |= {
            "/": make_page("Home", ("When?", TEXT)),
            "/hidden": make_page("Hidden", ("Is it hidden?", "Nothing links to it.")),
            "/moved": redirect("/", 301),
            "/closed": redirect("/", 302),
            "/broken": 500,
        }
        names = ("", "hidden", "moved", "closed", "broken", "missing")
        known = [*(f"{website.url}/{name}" for name in names), f"{other.url}/x"]
        found = await crawl(client, website.url, LIMITS, known=known)
    assert other.asked == []
    assert [one.question for one in found.entries] == ["When?", "Is it hidden?"]
    # A temporary redirect or an error says nothing about what was there.
    covered = {url.removeprefix(website.url) for url in found.covered}
    assert covered == {"/", "/hidden", "/moved", "/missing"}


async def test_same_headings(website: Website, client: OutboundClient) -> None:
    """Passages under the same heading are told apart by their pages; a text is kept once."""
    website.pages["/"] = make_page("Home", links=("/brno", "/praha", "/copy"))
    website.pages["/brno"] = make_page("Brno", ("Hours", f"{TEXT} In Brno."))
    website.pages["/praha"] = make_page("Praha", ("Hours", f"{TEXT} In Praha."))
    website.pages["/copy"] = make_page("Copy", ("Hours", f"{TEXT} In Praha."))
    found = await crawl(client, website.url, LIMITS)
    assert [(one.question, one.answer[-6:]) for one in found.entries] == [
        ("Hours", " Brno."),
        ("Praha \u2013 Hours", "Praha."),
    ]


PDF = make_pdf([[Line(60, 800, "Jak se máte?"), Line(60, 780, "Děkujeme, dobře.")]])


async def test_one_page(website: Website, client: OutboundClient) -> None:
    """A page or a document at an address is read; redirects to other sites are followed."""
    website.pages["/faq"] = make_page("FAQ", ("When?", TEXT))
    website.pages["/go"] = redirect("/faq")
    website.pages["/d"] = (PDF, {"Content-Type": "application/octet-stream"})
    [entry] = (await read_page(client, f"{website.url}/go")).entries
    assert (entry.question, entry.answer, entry.url) == ("When?", TEXT, f"{website.url}/faq")
    [entry] = (await read_page(client, f"{website.url}/d")).entries
    assert (entry.question, entry.answer) == ("Jak se máte?", "Děkujeme, dobře.")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gone", "it does not exist (status 410)"),
        ("broken", "it answers with status 500"),
        ("empty", "nothing to import: no questions and no text were found"),
        ("api", "unknown type of file; use .html, .pdf, .docx, .md, .csv or .txt"),
        ("loop", "redirects too many times"),
    ],
)
async def test_one_page_that_is_none(
    website: Website, client: OutboundClient, path: str, reason: str
) -> None:
    """A page without text is an error of one line."""
    website.pages |= {
        "/gone": 410,
        "/broken": 500,
        "/empty": "<!doctype html><p></p>",
        "/api": (b'{"a": 1}', {"Content-Type": "application/json"}),
        "/loop": redirect("/loop"),
    }
    url = f"{website.url}/{path}"
    with pytest.raises(PageGone if path == "gone" else KnowledgeError) as caught:
        await read_page(client, url)
    assert str(caught.value) == f"{url}: {reason}"


async def test_private_addresses(website: Website, client: OutboundClient) -> None:
    """Neither an address nor a redirect reaches what is not public and not allowed."""
    async with open_website(secret=make_page("Secret", ("Secret?", TEXT))) as other:
        port = other.url.rpartition(":")[2]
        website.pages["/go"] = redirect(f"{other.url}/secret")
        website.pages["/name"] = redirect(f"https://localhost:{port}/secret")
        for url in (
            f"{website.url}/go",
            f"{website.url}/name",
            f"{other.url}/secret",
            f"http://[::ffff:127.0.0.1]:{port}/secret",
            f"http://2130706433:{port}/secret",
        ):
            with pytest.raises(
                KnowledgeError, match=r"not at a public address|not an https address"
            ):
                await read_page(client, url)
        assert other.asked == []


def find_children() -> set[str]:
    """The ids of the processes that any of our threads has started."""
    lists = Path("/proc/self/task").glob("*/children")
    return {number for one in lists for number in one.read_text().split()}


async def test_cancelled(website: Website, client: OutboundClient) -> None:
    """A crawl that is cancelled in the middle of a document leaves no process."""
    website.pages["/"] = "<!doctype html>" + "<div>" * 200_000
    before = find_children()
    task = asyncio.create_task(crawl(client, website.url, LIMITS))
    async with asyncio.timeout(60):
        while find_children() == before:  # noqa: ASYNC110  # another process has no event
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert find_children() == before
