"""Documents and websites are read in a process of their own, bounded in time and memory."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hlas.errors import DocumentTooSlow, ImportBusy, UnreadableSource
from hlas.knowledge.imports import CrawlLimits, reading
from hlas.knowledge.imports.reading import Job, Reading, SourceReader, normalise, read
from websites import make_page, open_website

FAQ = b"<!doctype html><h1>FAQ</h1><h2>When?</h2><p>Always.</p>"
SLOW = b"<!doctype html>" + b"<div>" * 200_000


def list_pairs(found: Reading) -> list[tuple[str, str]]:
    return [(one.question, one.answer) for one in found.entries]


async def test_file_page_and_site() -> None:
    """Each kind of source is read; progress counts the pages of a site."""
    told: list[int] = []
    found = await read(Job("file", "faq.html", "en"), FAQ)
    assert (list_pairs(found), found.entries[0].language) == ([("When?", "Always.")], "en")
    assert found.covered is None
    async with open_website() as website:
        website.pages["/"] = make_page("Home", ("When?", "Always."), links=("/a", "/b"))
        website.pages["/a"] = make_page("A", ("Where?", "Here."))
        page = Job("page", f"{website.url}/a", private_hosts=(website.host,))
        assert list_pairs(await read(page)) == [("Where?", "Here.")]
        site = replace(page, kind="site", location=website.url, limits=CrawlLimits(pause=0))
        found = await read(replace(site, known=(f"{website.url}/old",)), on_page=told.append)
    assert list_pairs(found) == [("When?", "Always."), ("Where?", "Here.")]
    assert found.warnings == (
        f"{website.url}/b: it answers with status 404",
        f"{website.url}/old: it answers with status 404",
    )
    assert found.covered == frozenset(f"{website.url}/{name}" for name in ("", "a", "b", "old"))
    assert told == [1, 2, 3, 4]


async def test_page_that_is_gone() -> None:
    """A page that does not exist is an error the first time; later its entries are out of date."""
    async with open_website() as website:
        job = Job("page", f"{website.url}/a", private_hosts=(website.host,))
        with pytest.raises(UnreadableSource, match=r"/a: it does not exist \(status 404\)$"):
            await read(job)
        found = await read(replace(job, known=(job.location,)))
    assert (found.entries, found.covered) == ((), None)


async def test_too_much_for_a_tenant() -> None:
    """More entries or text than a tenant can have are an error, before they reach the worker."""
    many = b"question,answer\n" + b"".join(b"q%d,a\n" % number for number in range(5001))
    with pytest.raises(UnreadableSource, match=r"^many.csv: more than 5000 entries$"):
        await read(Job("file", "many.csv"), many)
    long = b"question,answer\n" + b"".join(b"q%d,%s\n" % (n, b"x" * 8000) for n in range(501))
    with pytest.raises(UnreadableSource, match=r"^long.csv: more than 4000000 characters of text$"):
        await read(Job("file", "long.csv"), long)


async def test_worker_is_not_blocked() -> None:
    """While a document keeps its parser busy, others are served; at the end no process is left.

    A tenant has one document read at a time, and a worker two.
    """
    desk = SourceReader(())
    job = Job("file", "slow.html")
    first = asyncio.create_task(desk.read("one", job, SLOW))
    second = asyncio.create_task(desk.read("two", job, SLOW))
    await asyncio.sleep(0)
    for tenant in ("one", "three"):
        with pytest.raises(ImportBusy):
            await desk.read(tenant, job, FAQ)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert list_pairs(await desk.read("three", Job("file", "faq.html"), FAQ))
    assert not first.done()
    sessions = find_readers()
    assert sessions
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    # Sooner than the parsing process would end by itself.
    async with asyncio.timeout(15):
        while find_readers() & sessions:  # noqa: ASYNC110  # another process has no event
            await asyncio.sleep(0.01)


def find_readers() -> set[str]:
    """The ids of processes that read documents for this one, and of those that parse for them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            is_mine = os.getsid(int(path.name)) in _MINE or _is_child(path)
        except OSError:
            continue
        if b"hlas.knowledge.imports" in command and is_mine:
            _MINE.add(int(path.name))
            found.add(path.name)
    return found


_MINE: set[int] = set()


def _is_child(path: Path) -> bool:
    return f"PPid:\t{os.getpid()}\n" in (path / "status").read_text()


async def test_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that is not read in time is an error, and its processes end."""
    monkeypatch.setattr(reading, "SECONDS", 0.5)
    monkeypatch.setattr(reading, "SPARE_SECONDS", 0.5)
    with pytest.raises(DocumentTooSlow, match=r"^slow.html: reading it takes too long$"):
        await read(Job("file", "slow.html"), SLOW)
    # Sooner than the parsing process would end by itself.
    async with asyncio.timeout(15):
        while find_readers():  # noqa: ASYNC110  # another process has no event
            await asyncio.sleep(0.01)


async def test_process_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed, as by the system when memory is short, is an error."""
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(DocumentTooSlow, match="too much time or memory"):
        await read(Job("file", "faq.html"), FAQ)


@pytest.mark.parametrize(
    ("given", "location"),
    [
        ("Shop.example", "https://shop.example/"),
        (" https://shop.example/a#b ", "https://shop.example/a"),
        ("https://shop.example:443/a", "https://shop.example/a"),
        ("ftp://shop.example/", None),
        ("https://user:password@shop.example/", None),
        ("not an address", None),
    ],
)
def test_one_spelling_of_addresses(given: str, location: str | None) -> None:
    """An address has one spelling, so that it is one source; what is none is refused."""
    if location is None:
        with pytest.raises(UnreadableSource, match="not the address of a page or a website"):
            normalise(Job("page", given))
    else:
        assert normalise(Job("page", given)).location == location
