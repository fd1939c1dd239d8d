"""Knowledge from documents and websites: what is found in them, before anything is stored.

`documents.read_document` reads a file, `crawl.crawl` a website and `crawl.read_page` one page.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

from hlas.knowledge.entries import Entry, KnowledgeError


class PageGone(KnowledgeError):
    """The page does not exist any more (404 or 410)."""

    status = 404
    code = "page_gone"


@dataclass(frozen=True, slots=True)
class Found:
    """What a document or a page contains. No two entries have the same question."""

    entries: tuple[Entry, ...]
    # One line each, for the user.
    warnings: tuple[str, ...] = ()
    title: str = ""

    @property
    def digest(self) -> str:
        """The same for the same entries, whatever else of the page has changed."""
        return digest_entries(self.entries)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a website: what was found on it, or one line that says why it was not read."""

    url: str
    found: Found | None = None
    error: str = ""
    # It does not exist any more, so what was imported from it is removed.
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class SiteFound:
    """The pages of a website, in the order they were read."""

    pages: tuple[Page, ...]
    # About the site as a whole, such as pages that were left out.
    warnings: tuple[str, ...] = ()

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

    @property
    def digest(self) -> str:
        return digest_entries(self.entries)


@dataclass(frozen=True, slots=True)
class Limits:
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
    names = [name, f"{title} \u2013 {name}"] if title and title != name else [name]
    number = 1
    while names[-1] in taken and number < 10_000:
        number += 1
        names.append(f"{name} ({number})")
    return next(one for one in names if one not in taken or one == names[-1])


def digest_entries(entries: Iterable[Entry]) -> str:
    lines = (repr((one.kind, one.question, one.answer, one.wordings, one.url)) for one in entries)
    return sha256("\n".join(lines).encode(errors="replace")).hexdigest()
