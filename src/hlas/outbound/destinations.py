"""Validates addresses that somebody else chose, before we connect to them."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from string import ascii_letters, digits, punctuation
from typing import Self
from urllib.parse import quote

import idna

from hlas.visitors.origins import Origin

LONGEST = 2000

# Global unicast, the only IPv6 range assigned to hosts on the public internet.
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_PLAIN = ascii_letters + digits + punctuation


@dataclass(frozen=True, slots=True)
class Destination:
    """An http or https address without user, password and fragment, in ASCII."""

    origin: Origin
    # Path and query, as in the request line.
    target: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse an address from a user or a redirect; None for anything but http and https."""
        found = re.fullmatch(r"(https?://)([^/?#]*)([^#]*)(#.*)?", text, re.DOTALL | re.IGNORECASE)
        if found is None or len(text) > LONGEST:
            return None
        scheme, authority, rest, _ = found.groups()
        origin = Origin.parse(scheme + _encode_authority(authority))
        if origin is None:
            return None
        target = rest if rest.startswith("/") else f"/{rest}"
        return cls(origin, quote(target, safe=_PLAIN, errors="replace"))

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"


def _encode_authority(authority: str) -> str:
    """Encode a non-ASCII host as punycode; an invalid one stays and is refused later."""
    host, colon, port = authority.partition(":")
    if host.isascii():
        return authority
    try:
        return idna.encode(host, uts46=True).decode() + colon + port
    except (idna.IDNAError, UnicodeError):
        return authority


def is_public(text: str) -> bool:
    """Whether an IP address belongs to a host on the public internet.

    It is not loopback, private, shared (100.64/10), link-local, multicast or reserved, in IPv4,
    IPv6 or IPv4 embedded in IPv6. Check the address that is connected to: a name may resolve to
    another one the next time.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        inner = _find_embedded(address)
        if inner is None:
            return address in _UNICAST and address.is_global
        address = inner
    return address.is_global and not address.is_multicast


def is_private_host(host: str) -> bool:
    """Whether a host is private by its spelling: an IP address that is not public, or localhost."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    literal = host.strip("[]")
    try:
        ip_address(literal)
    except ValueError:
        return False
    return not is_public(literal)


def _find_embedded(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address, if there is one."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
