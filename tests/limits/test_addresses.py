"""The address that limits count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlas.limits.addresses import TrustedProxies, client_address, has_untrusted_forwarding

NOBODY = TrustedProxies()
PROXIES = TrustedProxies.parse("10.0.0.0/8, 2001:db8:ffff::/48 192.0.2.1")


@pytest.mark.parametrize("spoofed", ["1.1.1.1", "1.1.1.1, 10.0.0.1", "", "nonsense"])
def test_a_spoofed_header_changes_nothing(spoofed: str) -> None:
    """Edge case 25: X-Forwarded-For of an untrusted peer is ignored."""
    for trusted in (NOBODY, PROXIES):
        assert client_address("203.0.113.7", [spoofed], trusted) == "203.0.113.7"


@pytest.mark.parametrize(
    ("forwarded_for", "expected"),
    [
        (["198.51.100.4"], "198.51.100.4"),
        (["1.1.1.1, 198.51.100.4"], "198.51.100.4"),
        (["1.1.1.1", "198.51.100.4, 10.2.2.2"], "198.51.100.4"),
        (["1.1.1.1,198.51.100.4", "10.2.2.2", "192.0.2.1"], "198.51.100.4"),
        (["198.51.100.4, ,"], "198.51.100.4"),
        (["198.51.100.4:5555"], "198.51.100.4"),
        (["[2001:db8:1:2:3::4]:80"], "2001:db8:1:2::/64"),
        (["[2001:db8:1:2:3::4]"], "2001:db8:1:2::/64"),
        (["::ffff:198.51.100.4"], "198.51.100.4"),
        (["198.51.100.4, ::ffff:10.2.2.2"], "198.51.100.4"),
        (["198.51.100.4, 2001:db8:ffff::9"], "198.51.100.4"),
        (["10.3.3.3, 10.2.2.2"], "10.3.3.3"),
        ([], "10.1.1.1"),
        ([""], "10.1.1.1"),
    ],
)
def test_through_a_trusted_proxy_the_rightmost_untrusted_counts(
    forwarded_for: list[str], expected: str
) -> None:
    """Edge case 25: read from the right, past trusted hops, in any notation that proxies use."""
    assert client_address("10.1.1.1", forwarded_for, PROXIES) == expected


@pytest.mark.parametrize(
    "entry", ["unknown", "_hidden", "1.2.3", "1.2.3.4.5", "a" * 70_000, "1.2.3.4%00", "[", "::1::"]
)
def test_an_entry_that_is_no_address_ends_the_reading(entry: str) -> None:
    """Edge case 25: entries to the left of an invalid one are not trusted, and nothing crashes."""
    assert client_address("10.1.1.1", [f"1.1.1.1, {entry}, 10.2.2.2"], PROXIES) == "10.2.2.2"


@pytest.mark.parametrize("text", ["::ffff:1.2.3.4", "::ffff:102:304", "1.2.3.4", "::FFFF:1.2.3.4"])
def test_mapped_addresses_are_one_bucket(text: str) -> None:
    """Edge case 26: an IPv4 address is one bucket in every notation."""
    assert client_address(text, [], NOBODY) == "1.2.3.4"
    assert client_address("10.1.1.1", [text], PROXIES) == "1.2.3.4"


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_64_is_one_bucket(left: int, right: int) -> None:
    """Edge case 26: all IPv6 addresses of a /64 share one bucket."""
    from ipaddress import IPv6Address

    prefix = 0x2001_0DB8_0000_0001 << 64
    buckets = {client_address(str(IPv6Address(prefix | low)), [], NOBODY) for low in (left, right)}
    assert buckets == {"2001:db8:0:1::/64"}
    assert client_address("2001:db8:0:2::1", [], NOBODY) not in buckets


def test_no_address_no_bucket() -> None:
    """A unix socket has no peer address: only the other limits apply."""
    assert client_address(None, ["1.1.1.1"], PROXIES) is None
    assert client_address("", [], NOBODY) is None
    assert client_address("/run/hlas.sock", [], NOBODY) is None


@given(st.lists(st.text(max_size=60), max_size=5))
def test_no_header_can_crash_or_reach_an_untrusted_peer(forwarded_for: list[str]) -> None:
    """Edge case 25: no text crashes the parser, and an untrusted peer keeps its own bucket."""
    assert client_address("203.0.113.7", forwarded_for, PROXIES) == "203.0.113.7"
    assert client_address("10.1.1.1", forwarded_for, PROXIES)


def test_an_untrusted_header_is_detected() -> None:
    """The most common misconfiguration, a proxy missing in TRUSTED_PROXIES, is detected."""
    assert has_untrusted_forwarding("203.0.113.7", ["1.1.1.1"], PROXIES)
    assert has_untrusted_forwarding("10.1.1.1", ["1.1.1.1"], NOBODY)
    assert not has_untrusted_forwarding("10.1.1.1", ["1.1.1.1"], PROXIES)
    assert not has_untrusted_forwarding("203.0.113.7", [], PROXIES)
    assert not has_untrusted_forwarding(None, ["1.1.1.1"], PROXIES)


def test_trusted_mapped_network_is_ipv4() -> None:
    """A network in IPv4-mapped form means the IPv4 network."""
    trusted = TrustedProxies.parse("::ffff:172.16.0.0/108")
    assert client_address("172.16.5.5", ["1.1.1.1"], trusted) == "1.1.1.1"
    assert client_address("172.32.0.1", ["1.1.1.1"], trusted) == "172.32.0.1"


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.example", "10.0.0.1/8", "10.0.0.0/8;::1"])
def test_a_bad_network_is_refused_in_one_sentence(text: str) -> None:
    """An invalid TRUSTED_PROXIES stops the start: a typo must not widen the trust."""
    with pytest.raises(ValueError, match="is not a network") as caught:
        TrustedProxies.parse(text)
    assert "\n" not in str(caught.value)
