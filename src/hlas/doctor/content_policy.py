"""Whether a page's Content-Security-Policy allows a script or a connection."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from hlas.visitors.origins import Origin

# The first of these directives that a policy has decides.
SCRIPT = ("script-src-elem", "script-src", "default-src")
CONNECT = ("connect-src", "default-src")

_HOST = re.compile(
    r"(?:([a-z][a-z0-9+.-]*)://)?(\*|(?:\*\.)?[^:/]+)(?::([0-9]{1,5}|\*))?(/.*)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The address that the page uses, and for a script the attributes of its tag."""

    url: str
    page: Origin
    nonce: str = ""
    integrity: str = ""


def find_blocking(policies: Sequence[str], directives: Sequence[str], wanted: Wanted) -> str | None:
    """The directive that blocks it, or None. Every policy of the page must allow it."""
    for policy in policies:
        rules = _parse(policy)
        name = next((directive for directive in directives if directive in rules), None)
        if name is not None and not _allows(rules[name], wanted, script=directives is SCRIPT):
            return name
    return None


def split(header: str) -> list[str]:
    """One header may hold several policies."""
    return [policy for policy in header.split(",") if policy.strip()]


def _parse(policy: str) -> dict[str, list[str]]:
    rules: dict[str, list[str]] = {}
    for part in policy.split(";"):
        words = part.split()
        if words:
            # If a directive is repeated, the first one counts.
            rules.setdefault(words[0].lower(), words[1:])
    return rules


def _allows(sources: list[str], wanted: Wanted, *, script: bool) -> bool:
    if script:
        marks = {f"'nonce-{wanted.nonce}'"} if wanted.nonce else set()
        marks |= {f"'{digest}'" for digest in wanted.integrity.split()}
        if marks & set(sources):
            return True
        # A browser then ignores every source that is a host or a scheme.
        if "'strict-dynamic'" in sources:
            return False
    return any(_matches(source, wanted) for source in sources)


def _matches(source: str, wanted: Wanted) -> bool:
    target = Origin.of_url(wanted.url)
    if target is None:
        return False
    if source == "*":
        return True
    if source.startswith("'"):
        return source.lower() == "'self'" and target == wanted.page
    if source.endswith(":") and "/" not in source:
        return _scheme_fits(source[:-1].lower(), target.scheme)
    return _place_fits(source, target, urlsplit(wanted.url).path, wanted.page)


def _place_fits(source: str, target: Origin, path: str, page: Origin) -> bool:
    found = _HOST.fullmatch(source)
    if found is None:
        return False
    scheme, host, port, place = found.groups()
    if not _scheme_fits((scheme or page.scheme).lower(), target.scheme):
        return False
    if not _host_fits(host.lower(), target.host) or not _port_fits(port, target):
        return False
    return not place or path == place or (place[-1] == "/" and path.startswith(place))


def _scheme_fits(allowed: str, scheme: str) -> bool:
    """What is allowed over http is allowed over https."""
    return allowed == scheme or (allowed == "http" and scheme == "https")


def _host_fits(allowed: str, host: str) -> bool:
    return allowed in {"*", host} or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def _port_fits(allowed: str | None, target: Origin) -> bool:
    if allowed is None:
        return target.port == (443 if target.scheme == "https" else 80)
    return allowed == "*" or int(allowed) == target.port
