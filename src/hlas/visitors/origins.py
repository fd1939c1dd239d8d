"""Web origins as browsers send them, and the allowlist entries they are matched against."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Self

import idna

DEFAULT_PORTS = {"http": 80, "https": 443}
LOCAL_HOSTS = {"localhost", "127.0.0.1", "[::1]"}

_ORIGIN = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
_ENTRY = re.compile(
    r"(?:(https?)://)?(\*\.)?([^\s:/?#@\\\[\]*]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", re.ASCII
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Origin:
    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse an origin exactly as a browser serialises it, folding upper case; else None."""
        found = _ORIGIN.fullmatch(text.lower()) if len(text) <= 300 and text.isascii() else None
        if found is None:
            return None
        scheme, host, port = found.groups()
        number = _parse_port(port, scheme)
        if number is None or not _is_host(host):
            return None
        return cls(scheme, host, number)

    @classmethod
    def of_url(cls, url: str) -> Self | None:
        """Return the origin of a URL, as in Referer."""
        scheme, separator, rest = url.partition("://")
        authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
        return cls.parse(f"{scheme}://{authority}") if separator else None

    @property
    def hosts(self) -> list[str]:
        """The host, then the parent domains that a wildcard entry may name, nearest first."""
        if self.host.startswith("[") or _is_ipv4(self.host):
            return [self.host]
        labels = self.host.split(".")
        return [".".join(labels[start:]) for start in range(max(1, len(labels) - 1))]

    def __str__(self) -> str:
        return _serialise(self.scheme, self.host, self.port)


@dataclass(frozen=True, slots=True)
class AllowedDomain:
    """An allowlist entry; a scheme or port of None matches any."""

    scheme: str | None
    host: str
    port: int | None
    is_wildcard: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `example.com`, `*.example.com`, `http://example.com:81` or `localhost`."""
        found = _ENTRY.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError(
                "not a domain: use for example example.com, *.example.com or localhost:3000"
            )
        scheme, star, name, port = found.groups()
        host = _encode_host(name)
        if star and (host in LOCAL_HOSTS or _is_ipv4(host) or "[" in host or "." not in host):
            raise ValueError(
                "a wildcard needs a domain of at least two parts, such as *.example.com"
            )
        if host in LOCAL_HOSTS:
            return cls(scheme, host, int(port) if port else None, is_wildcard=False)
        scheme = scheme or "https"
        number = _parse_port(port, scheme)
        if number is None:
            raise ValueError("the port must be between 1 and 65535")
        return cls(scheme, host, number, is_wildcard=bool(star))

    def __str__(self) -> str:
        host = f"*.{self.host}" if self.is_wildcard else self.host
        if self.scheme is None:
            return host if self.port is None else f"{host}:{self.port}"
        if self.port is None:
            return f"{self.scheme}://{host}"
        full = _serialise(self.scheme, host, self.port)
        return full.removeprefix("https://") if host not in LOCAL_HOSTS else full


def _serialise(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{host}" if port == DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"


def _parse_port(text: str | None, scheme: str) -> int | None:
    number = int(text) if text else DEFAULT_PORTS[scheme]
    return number if 1 <= number <= 65535 and not (text or "").startswith("0") else None


def _is_ipv4(host: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(host)) == host
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    if host.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(host[1:-1])}]" == host
        except ValueError:
            return False
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return False
    # A numeric last label is a disguised address (127.1, 0x7f.1), unless it is a plain IPv4.
    if labels[-1].isdigit() or re.fullmatch(r"0x[0-9a-f]*", labels[-1]):
        return _is_ipv4(host)
    return all(_is_punycode(label) for label in labels if label.startswith("xn--"))


def _is_punycode(label: str) -> bool:
    """Whether an xn-- label is the canonical encoding of its text."""
    try:
        return idna.encode(idna.decode(label)).decode() == label
    except (idna.IDNAError, UnicodeError):
        return False


def _encode_host(name: str) -> str:
    host = name.removesuffix(".")
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True, transitional=False).decode()
        except (idna.IDNAError, UnicodeError):
            raise ValueError("the domain contains invalid characters") from None
    if not _is_host(host):
        raise ValueError("not a valid domain or address")
    return host
