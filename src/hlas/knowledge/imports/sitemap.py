"""Reads sitemaps, as XML or plain text."""

import re
import zlib
from dataclasses import dataclass
from html import unescape

LARGEST_SITEMAP = 10 * 2**20
MOST_ADDRESSES = 50_000

# No XML parser: entities of a hostile sitemap could expand without end.
# Possessive: megabytes of spaces would otherwise be divided between both in every possible way.
_LOCATION = re.compile(r"<(?:\w{1,20}:)?loc>\s*+(?:<!\[CDATA\[)?+\s*+([^<\s]{1,2000})")


@dataclass(frozen=True, slots=True)
class Sitemap:
    pages: tuple[str, ...] = ()
    # Other sitemaps, if this is an index.
    sitemaps: tuple[str, ...] = ()


def parse_sitemap(data: bytes) -> Sitemap | None:
    """None if it is not a sitemap."""
    text = unpack(data).decode("utf-8", errors="replace").lstrip("\ufeff")
    head = text[:2000]
    if "<sitemapindex" in head or "<urlset" in head:
        found = (unescape(one[1].removesuffix("]]>")) for one in _LOCATION.finditer(text))
        addresses = tuple(dict.fromkeys(found))[:MOST_ADDRESSES]
        return Sitemap(sitemaps=addresses) if "<sitemapindex" in head else Sitemap(addresses)
    lines = text.split()
    if lines and all(re.match(r"https?://", line) for line in lines):
        return Sitemap(tuple(dict.fromkeys(lines))[:MOST_ADDRESSES])
    return None


def unpack(data: bytes, largest: int = LARGEST_SITEMAP) -> bytes:
    """Unpack gzip up to a size; other data is returned as it is."""
    if not data.startswith(b"\x1f\x8b"):
        return data[:largest]
    try:
        return zlib.decompressobj(wbits=31).decompress(data, largest)
    except zlib.error:
        return b""
