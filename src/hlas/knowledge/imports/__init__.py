"""Knowledge from documents and websites: what is found in them, before anything is stored.

`documents.read_document` reads a file, `crawl.crawl` a website and `crawl.read_page` one page.
"""

from collections.abc import Container
from dataclasses import dataclass, replace
from itertools import chain, count

from hlas.knowledge.entries import LONGEST_QUESTION, Entry, KnowledgeError


class PageGone(KnowledgeError):
    """The page does not exist any more (404 or 410)."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a document or a page contains. No two entries have the same question."""

    entries: tuple[Entry, ...]
    # One line each, for the user.
    warnings: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What was found in a document, and the addresses it links to."""

    found: Found
    links: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a website: what was found on it, or one line that says why it was not read."""

    url: str
    found: Found | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SiteFound:
    """The pages of a website, in the order they were read."""

    pages: tuple[Page, ...]
    # About the site as a whole, such as pages that were left out.
    warnings: tuple[str, ...] = ()
    # Addresses that do not exist any more or lead to other pages.
    gone: frozenset[str] = frozenset()

    @property
    def covered(self) -> frozenset[str]:
        """What was imported from these before, and was not found now, is out of date."""
        return self.gone | {page.url for page in self.pages if page.found}

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all pages, each question and each text once.

        Passages of several pages under the same heading are named after their pages, too.
        """
        first: dict[str, Entry] = {}
        texts: set[str] = set()
        for page in self.pages:
            for entry in page.found.entries if page.found else ():
                name = entry.question
                if entry.kind == "passage":
                    if entry.answer in texts:
                        continue
                    texts.add(entry.answer)
                    title = page.found.title[:200] if page.found else ""
                    name = _find_free(name, title, first)
                first.setdefault(name, replace(entry, question=name))
        return tuple(first.values())


@dataclass(frozen=True, slots=True)
class CrawlLimits:
    """How much of a website is read, and how fast."""

    pages: int = 200
    page_bytes: int = 2 * 2**20
    # In all, and for one page.
    seconds: float = 900.0
    page_seconds: float = 15.0
    # Links from the first page.
    depth: int = 5
    # Between two requests; robots.txt may ask for more.
    pause: float = 0.5


def _find_free(name: str, title: str, taken: Container[str]) -> str:
    longer = f"{title} \u2013 {name}" if title and title != name else name
    numbered = (f"{name} ({number})" for number in count(2))
    names = chain((name, longer), numbered)
    return next(one for one in names if one not in taken and len(one) <= LONGEST_QUESTION)
