"""What robots.txt and sitemaps say, also when they are hostile."""

import gzip

import pytest

from hlas.knowledge.imports.addresses import Frontier, Site
from hlas.knowledge.imports.robots import LONGEST_DELAY, parse_robots
from hlas.knowledge.imports.sitemap import LARGEST_SITEMAP, Sitemap, parse_sitemap
from hlas.visitors.origins import Origin

ROBOTS = b"""\xef\xbb\xbf# comment
User-agent: *
Disallow: /

User-agent: other
User-agent: HLAS
Disallow: /private # comment
Disallow: /*.php$
Disallow: /*?print
Disallow:
Allow: /private/open
Crawl-delay: 2.5
nonsense
Sitemap: https://shop.example/map.xml
"""


@pytest.mark.parametrize(
    ("target", "is_allowed"),
    [
        ("/", True),
        ("/private", False),
        ("/private/open/a", True),
        ("/a/b.php", False),
        ("/a/b.php?x", True),
        ("/a.php.php", False),
        ("/a?print=1", False),
        ("/Private", True),
    ],
)
def test_robots(target: str, is_allowed: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """The group for us counts, the longest rule in it decides."""
    assert parse_robots(ROBOTS).allow(target) is is_allowed


def test_robots_fields() -> None:
    """The delay and the sitemaps are read; absurd delays are cut; others' groups do not count."""
    robots = parse_robots(ROBOTS)
    assert (robots.delay, robots.sitemaps) == (2.5, ("https://shop.example/map.xml",))
    assert not parse_robots(ROBOTS.replace(b"HLAS", b"bots")).allow("/a")
    assert parse_robots(b"User-agent: *\nCrawl-delay: 99999").delay == LONGEST_DELAY
    assert parse_robots(b"User-agent: *\nCrawl-delay: -1").delay == 0
    assert parse_robots(b"User-agent: *\nDisallow: /" + b"*a" * 200_000).allow("/" + "a" * 2000)


def test_sitemap() -> None:
    """Sitemaps may be XML, an index, plain text or packed; anything else is none."""
    xml = "<urlset><url><loc>\n <![CDATA[https://a.example/?x=1&amp;y=2]]></loc></url></urlset>"
    assert parse_sitemap(xml.encode()) == Sitemap(("https://a.example/?x=1&y=2",))
    index = b"<sitemapindex><sitemap><loc>https://a.example/b.xml</loc></sitemap></sitemapindex>"
    assert parse_sitemap(gzip.compress(index)) == Sitemap(sitemaps=("https://a.example/b.xml",))
    assert parse_sitemap(b"https://a.example/\nhttps://a.example/b") == Sitemap(
        ("https://a.example/", "https://a.example/b")
    )
    assert parse_sitemap(b"<!doctype html><p>Hello</p>") is None
    assert parse_sitemap(gzip.compress(b"https://a.example/ ")[:-9]) is not None


def test_hostile_sitemap() -> None:
    """Entities are not expanded, and no more is unpacked than a sitemap may have."""
    entities = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><urlset><loc>https://a.example/&a;</loc></urlset>'
    assert parse_sitemap(entities) == Sitemap(("https://a.example/&a;",))
    bomb = gzip.compress(b"https://a.example/\n" + b" " * (LARGEST_SITEMAP + 1000) + b"x")
    assert parse_sitemap(bomb) == Sitemap(("https://a.example/",))


def test_sitemap_of_spaces() -> None:
    """Spaces cost as much as other text: with backtracking these would take hours."""
    assert parse_sitemap(b"<urlset><loc>" + b" " * 5_000_000) == Sitemap()


SITE = Site(Origin("https", "shop.example", 443))


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://www.shop.example/a/?utm_source=x&b=2&a=1#part", "/a/?a=1&b=2"),
        ("https://shop.example/index.html", "/"),
        ("https://shop.example/a;jsessionid=1?p=5", "/a?p=5"),
        ("https://shop.example:8443/", None),
        ("https://shop.example.evil.example/", None),
        ("https://shop.example@evil.example/", None),
        ("mailto:info@shop.example", None),
    ],
)
def test_one_spelling(url: str, found: str | None) -> None:
    """Addresses of a page are one address; those of other sites are none."""
    assert SITE.find(url) == (found and f"https://shop.example{found}")


def test_frontier() -> None:
    """Each page once; no files, no shopping carts, no mazes."""
    frontier = Frontier(SITE)
    base = "https://shop.example"
    assert frontier.take(f"{base}/{one}" for one in ("z", "faq", "z#a", "z?sort=up", "a.pdf")) == [
        f"{base}/faq",
        f"{base}/z",
    ]
    assert frontier.take(f"{base}/{one}" for one in ("kosik/", "wp-admin/x", "a/a/a/a")) == []
    assert len(frontier.take(f"{base}/?page={number}" for number in range(100))) == 10
    assert len(frontier.take(f"{base}/2024/{number}" for number in range(100))) == 50
    assert len(frontier.take(f"{base}/article-{number}" for number in range(100))) == 100
