"""Which addresses outbound requests may go to when somebody else chose them."""

import pytest

from hlas.doctor.finding import Finding
from hlas.outbound.destinations import Destination, is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "fd00::1",
        "ff02::1",
        "2001:db8::1",
        "2001::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:7f00:1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::808:808",
        "2002:7f00:1::",
        "2002:a00:1::1",
        # No socket returns an address in these spellings, so they are refused.
        "127.1",
        "0x7f.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "localhost",
        "[::1]",
        "9" * 5000,
        "",
    ],
)
def test_not_public(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, embedded in IPv6, or invalid: not public."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_public(address: str) -> None:
    """Hosts of the internet are public, also in the form of IPv6-only networks (NAT64)."""
    assert is_public(address)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://shop.example", "https://shop.example/"),
        ("HTTP://Shop.Example:80/Basket?a=B#top", "http://shop.example/Basket?a=B"),
        ("https://shop.example?a=b", "https://shop.example/?a=b"),
        ("https://müller.example/č a", "https://xn--mller-kva.example/%C4%8D%20a"),
        ("http://[::1]:8000/", "http://[::1]:8000/"),
        ("http://a/\r\nHost: evil\0", "http://a/%0D%0AHost:%20evil%00"),
        ("http://a/\udcff", "http://a/?"),
    ],
)
def test_addresses_as_people_write_them(text: str, address: str) -> None:
    """An address is normalised to one ASCII spelling that fits a request line."""
    destination = Destination.parse(text)
    assert str(destination) == address
    assert destination == Destination.parse(address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "shop.example",
        "//shop.example/",
        "ftp://shop.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "http://",
        "http://[",
        "http://[::1",
        "http://:99999",
        "http://shop.example:99999/",
        "http://shop.example:0/",
        "http://shop.example:" + "9" * 5000,
        "http://user:password@shop.example/",
        "http://shop example/",
        "http://shop.example\0/",
        "http://shop.example\n/",
        "http://127.1/",
        "http://0x7f000001/",
        "http://2130706433/",
        "http://" + "a" * 300 + "/",
        "http://shop.example/" + "a" * 5000,
        "http://a\udcff/",
        "http://☃\u200b./",
    ],
)
def test_invalid_addresses(text: str) -> None:
    """Other schemes, users, unusual hosts, ports and lengths are refused without an exception."""
    assert Destination.parse(text) is None


def test_findings_are_safe_on_a_terminal() -> None:
    """Escape codes, C0 and C1, line breaks and bidirectional overrides are replaced."""
    evil = "a\x1b[2Jb\x07\r\n\x9b31m\u202ec\u2066\u200b\u2028\x7f\ud800é…"
    shown = Finding("page", "fail", evil, evil).printable()
    assert shown.found == shown.fix == "a?[2Jb????31m?c?????é…"
