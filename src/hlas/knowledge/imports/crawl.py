"""Reads the pages of a website."""

from collections.abc import Callable

from hlas.knowledge.entries import KnowledgeError
from hlas.knowledge.imports import Found, Limits, Page, SiteFound
from hlas.knowledge.language import Language
from hlas.outbound.client import OutboundClient


async def crawl(
    client: OutboundClient,
    url: str,
    limits: Limits | None = None,
    on_page: Callable[[Page], None] = lambda _page: None,
    language: Language | None = None,
) -> SiteFound:
    """Read the site of an address, or the pages that a sitemap lists.

    Raises KnowledgeError with one line when not even its first page can be read.
    """
    raise KnowledgeError(f"{url}: cannot be read")


async def read_page(client: OutboundClient, url: str, language: Language | None = None) -> Found:
    """Read one page or document; raises KnowledgeError with one line."""
    raise KnowledgeError(f"{url}: cannot be read")
