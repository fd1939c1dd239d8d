"""Origins as browsers send them, and allowlist entries as operators write them."""

import pytest

from hlas.errors import InvalidOrigin
from hlas.visitors.origins import AllowedDomain, Origin
from hlas.visitors.sessions import request_origin


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://shop.example", Origin("https", "shop.example", 443)),
        ("http://shop.example", Origin("http", "shop.example", 80)),
        ("https://shop.example:8443", Origin("https", "shop.example", 8443)),
        ("HTTPS://Shop.EXAMPLE", Origin("https", "shop.example", 443)),
        ("http://localhost:3000", Origin("http", "localhost", 3000)),
        ("http://127.0.0.1:3000", Origin("http", "127.0.0.1", 3000)),
        ("http://[::1]:3000", Origin("http", "[::1]", 3000)),
        ("https://xn--hky-ela4t.example", Origin("https", "xn--hky-ela4t.example", 443)),
    ],
)
def test_origin(text: str, expected: Origin) -> None:
    """Edge case 38: scheme, host and port are exact; upper case is folded."""
    assert Origin.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "shop.example",
        "//shop.example",
        "ftp://shop.example",
        "file://",
        "https://",
        "https:shop.example",
        "https://user@shop.example",
        "https://user:secret@shop.example",
        "https://shop.example/",
        "https://shop.example/path",
        "https://shop.example?x",
        "https://shop.example#x",
        "https://shop.example.",
        "https://shop..example",
        "https://.shop.example",
        "https://shop.example\\",
        "https:\\\\shop.example",
        "https://shop.example\\@evil.example",
        "https://shop.example\t",
        "\thttps://shop.example",
        " https://shop.example",
        "https://shop.example ",
        "https://shop.example\n",
        "https://shop.example\r\n",
        "https://shop.example\0",
        "https://shop.example,https://evil.example",
        "https://shop.example https://evil.example",
        "https://shop.example:",
        "https://shop.example:0",
        "https://shop.example:65536",
        "https://shop.example:0443",
        "https://shop.example:+443",
        "https://shop.example:4 43",
        "https://shop.example:٤٤٣",
        "https://shop.example:abc",
        "https://shоp.example",  # noqa: RUF001  # a Cyrillic look-alike
        "https://shop。example",
        "https://ﬀ.example",
        "https://xn--a.example",
        "https://xn--SHOP-.example",
        "https://xn--ls8h=.example",
        "https://-shop.example",
        "https://shop-.example",
        f"https://{'a' * 64}.example",
        f"https://{'a.' * 140}example",
        "https://*.example",
        "https://sh%6fp.example",
        "https://0x7f.1",
        "https://127.1",
        "https://2130706433",
        "https://0177.0.0.1",
        "https://127.0.0.1.",
        "https://256.0.0.1",
        "https://[::1",
        "https://::1",
        "https://[::1%25eth0]",
        "https://[0:0:0:0:0:0:0:1]",
        "https://[::ffff:7f00:1]x",
    ],
)
def test_no_origin(text: str) -> None:
    """Edge case 38: anything that a browser would not serialise is not an origin."""
    assert Origin.parse(text) is None


def test_one_spelling() -> None:
    """Edge case 38: the default port and no port are one origin, written without it."""
    with_port = Origin.parse("https://shop.example:443")
    assert with_port == Origin.parse("https://shop.example")
    assert str(with_port) == "https://shop.example"
    assert str(Origin.parse("http://shop.example:443")) == "http://shop.example:443"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://shop.example/a?b=https://evil.example#c", "https://shop.example"),
        ("https://shop.example", "https://shop.example"),
        ("https://shop.example:8443/a", "https://shop.example:8443"),
        ("https://user@shop.example/", None),
        ("https://evil.example\\@shop.example/", None),
        ("https://shop.example.evil.example/", "https://shop.example.evil.example"),
        ("about:blank", None),
        ("/path", None),
    ],
)
def test_origin_of_url(url: str, expected: str | None) -> None:
    """Edge case 38: only the origin of a Referer counts, by the same rules."""
    found = Origin.of_url(url)
    assert (str(found) if found else None) == expected


def test_parents() -> None:
    """Edge case 38: wildcards match parents of at least two labels; addresses have none."""
    deep = Origin.parse("https://a.b.shop.example")
    assert deep is not None
    assert deep.hosts == ["a.b.shop.example", "b.shop.example", "shop.example"]
    for text in ("https://10.0.0.1", "https://[::1]", "https://localhost"):
        found = Origin.parse(text)
        assert found is not None
        assert found.hosts == [found.host]


@pytest.mark.parametrize(
    ("origins", "referers", "expected"),
    [
        (["https://a.example"], [], "https://a.example"),
        (["https://a.example"], ["https://b.example/"], "https://a.example"),
        ([], ["https://b.example/x"], "https://b.example"),
        ([], [], None),
        ([], ["https://b.example/", "https://b.example/"], None),
        (["null"], ["https://b.example/"], None),
        ([""], ["https://b.example/"], None),
        (["https://a.example", "https://a.example"], [], None),
        (["https://a.example", "https://b.example"], [], None),
    ],
)
def test_request_origin(origins: list[str], referers: list[str], expected: str | None) -> None:
    """Edge case 38: exactly one Origin; Referer only if there is no Origin header at all."""
    if expected is None:
        with pytest.raises(InvalidOrigin):
            request_origin(origins, referers)
    else:
        assert str(request_origin(origins, referers)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shop.example", AllowedDomain("https", "shop.example", 443, is_wildcard=False)),
        (" Shop.Example/ ", AllowedDomain("https", "shop.example", 443, is_wildcard=False)),
        ("shop.example.", AllowedDomain("https", "shop.example", 443, is_wildcard=False)),
        ("http://shop.example", AllowedDomain("http", "shop.example", 80, is_wildcard=False)),
        ("shop.example:8443", AllowedDomain("https", "shop.example", 8443, is_wildcard=False)),
        ("*.shop.example", AllowedDomain("https", "shop.example", 443, is_wildcard=True)),
        ("localhost", AllowedDomain(None, "localhost", None, is_wildcard=False)),
        ("localhost:3000", AllowedDomain(None, "localhost", 3000, is_wildcard=False)),
        ("127.0.0.1", AllowedDomain(None, "127.0.0.1", None, is_wildcard=False)),
        ("[::1]", AllowedDomain(None, "[::1]", None, is_wildcard=False)),
        ("háčky.example", AllowedDomain("https", "xn--hky-ela4t.example", 443, is_wildcard=False)),
        ("FAß.example", AllowedDomain("https", "xn--fa-hia.example", 443, is_wildcard=False)),
    ],
)
def test_entry(text: str, expected: AllowedDomain) -> None:
    """Edge case 38: an entry is stored in one spelling, in punycode if it is not ASCII."""
    assert AllowedDomain.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["shop.example", "http://shop.example", "shop.example:8443", "*.shop.example", "localhost",
     "localhost:3000", "http://localhost", "https://localhost:3000", "[::1]:3000", "háčky.example",
     "http://*.shop.example:81"],
)  # fmt: skip
def test_entry_is_read_back(text: str) -> None:
    """The displayed form of an entry parses to the same entry."""
    entry = AllowedDomain.parse(text)
    assert AllowedDomain.parse(str(entry)) == entry


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "*.com", "*.localhost", "*.10.0.0.1", "a.*.example", "shop.example/path",
     "user@shop.example", "ftp://shop.example", "shop example", "shop.example:0",
     "shop.example:70000", "shop.example:x", "127.1", "-a.example", "a_.exa mple", "xn--a.example",
     "https://", "\u202eshop.example"],
)  # fmt: skip
def test_no_entry(text: str) -> None:
    """Edge case 38: an entry that could never match, or would match too much, is refused."""
    with pytest.raises(ValueError, match=r"."):
        AllowedDomain.parse(text)
