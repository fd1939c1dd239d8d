"""The client address that a request is counted for."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import NamedTuple

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

_MAPPED = IPv6Network("::ffff:0:0/96")


# The longest address with brackets, a zone and a port; longer text is not cached.
_LONGEST = 80


class _Host(NamedTuple):
    address: _Address
    bucket: str


@lru_cache(maxsize=65536)
def _parse(text: str) -> _Host | None:
    """Parse an address as proxies write it: bare, with a port, or in brackets."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return _Host(address, str(address))
    if address.ipv4_mapped:
        return _Host(address.ipv4_mapped, str(address.ipv4_mapped))
    # Every customer has at least a /64, so single IPv6 addresses are not worth counting.
    return _Host(address, f"{IPv6Address(int(address) >> 64 << 64)}/64")


class TrustedProxies:
    """The networks whose X-Forwarded-For is trusted."""

    def __init__(self, networks: Sequence[_Network] = ()) -> None:
        self._networks = tuple(networks)
        # A cache on the class's method would keep every instance alive.
        self.trust = lru_cache(maxsize=65536)(self._trust)

    @classmethod
    def parse(cls, text: str) -> "TrustedProxies":
        """Read CIDRs or addresses, separated by commas or spaces."""
        return cls([_parse_network(part) for part in text.replace(",", " ").split()])

    def __bool__(self) -> bool:
        return bool(self._networks)

    def _trust(self, text: str) -> bool:
        host = _parse(text)
        return host is not None and any(host.address in network for network in self._networks)


def _parse_network(text: str) -> _Network:
    try:
        network = ip_network(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a network: write a CIDR such as 10.0.0.0/8 or 2001:db8::/32"
        ) from error
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        mapped = int(network.network_address) & 0xFFFF_FFFF
        return IPv4Network((mapped, network.prefixlen - 96))
    return network


def client_address(
    peer: str | None, forwarded_for: Sequence[str], trusted: TrustedProxies
) -> str | None:
    """Return the bucket of the client's address, or None without one, as on a unix socket.

    X-Forwarded-For is read from the right, because the client controls its left end.
    """
    last = _parse(peer) if peer else None
    if peer is None or last is None:
        return None
    if not forwarded_for or not trusted:
        return last.bucket
    rest, hop = ",".join(forwarded_for), peer
    while rest and trusted.trust(hop):
        rest, _, entry = rest.rpartition(",")
        entry = entry.strip()
        if not entry:
            continue
        host = _parse(entry) if len(entry) <= _LONGEST else None
        # Nothing to the left of an invalid entry can be trusted.
        if host is None:
            break
        last, hop = host, entry
    return last.bucket


def has_untrusted_forwarding(
    peer: str | None, forwarded_for: Sequence[str], trusted: TrustedProxies
) -> bool:
    """Whether an untrusted peer sent X-Forwarded-For: often a proxy missing in TRUSTED_PROXIES."""
    if not forwarded_for or not peer:
        return False
    return _parse(peer) is not None and not trusted.trust(peer)
