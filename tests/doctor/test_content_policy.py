"""Content-Security-Policy as browsers read it, as far as our script and API are concerned.

Fails with these defects planted: default-src ignored, ports not compared, `*.` matching the
bare domain, only the first policy read.
"""

import pytest

from hlas.doctor.content_policy import CONNECT, SCRIPT, Wanted, find_blocking, split
from hlas.visitors.origins import Origin

PAGE = Origin("https", "shop.example", 443)
URL = "https://chat.example.com/widget.js"


@pytest.mark.parametrize(
    "policy",
    [
        "",
        "img-src 'none'",
        "script-src *",
        "script-src https:",
        "SCRIPT-SRC HTTPS:",
        "script-src http:",
        "script-src 'self' chat.example.com",
        "script-src https://chat.example.com",
        "script-src http://chat.example.com:443",
        "script-src https://chat.example.com:*",
        "script-src *.example.com",
        "script-src chat.example.com/widget.js",
        "script-src chat.example.com/",
        "default-src 'none'; script-src chat.example.com",
        "script-src 'none'; script-src-elem chat.example.com",
        "script-src 'nonce-abc'",
        "script-src 'strict-dynamic' 'nonce-abc' https:",
        "script-src 'sha384-xyz'",
        "script-src chat.example.com; script-src 'none'",
    ],
)
def test_allowed(policy: str) -> None:
    """Each of these policies allows the script."""
    wanted = Wanted(URL, PAGE, nonce="abc", integrity="sha384-xyz")
    assert find_blocking([policy], SCRIPT, wanted) is None


@pytest.mark.parametrize(
    ("policy", "directive"),
    [
        ("script-src", "script-src"),
        ("script-src 'none'", "script-src"),
        ("script-src 'self'", "script-src"),
        ("default-src 'self'", "default-src"),
        ("script-src *; script-src-elem 'self'", "script-src-elem"),
        ("script-src http://chat.example.com:8080", "script-src"),
        ("script-src chat.example.com:8443", "script-src"),
        # A port with that many digits is not parsed as a number.
        (f"script-src chat.example.com:{'9' * 5000}", "script-src"),
        ("script-src *.chat.example.com", "script-src"),
        ("script-src example.com", "script-src"),
        ("script-src chat.example.com/other/", "script-src"),
        ("script-src wss:", "script-src"),
        ("script-src 'nonce-other'", "script-src"),
        ("script-src 'strict-dynamic' https: 'nonce-other'", "script-src"),
        ("script-src data: blob: 'unsafe-inline'", "script-src"),
    ],
)
def test_blocked(policy: str, directive: str) -> None:
    """Each of these policies blocks the script, and the directive to change is named."""
    wanted = Wanted(URL, PAGE, nonce="abc", integrity="sha384-xyz")
    assert find_blocking([policy], SCRIPT, wanted) == directive


def test_every_policy_counts() -> None:
    """Several headers, or several policies in one header, must all allow it."""
    both = split("script-src https:, default-src 'self'")
    assert find_blocking(both, SCRIPT, Wanted(URL, PAGE)) == "default-src"
    assert find_blocking(both[:1], SCRIPT, Wanted(URL, PAGE)) is None


def test_connections() -> None:
    """The API is subject to connect-src; nonces do not apply, `'self'` is the page's own origin."""
    api = Wanted("https://chat.example.com/widget/session", PAGE, nonce="abc")
    policy = "script-src https:; connect-src 'self' 'nonce-abc'"
    assert find_blocking([policy], CONNECT, api) == "connect-src"
    assert find_blocking(["connect-src chat.example.com"], CONNECT, api) is None
    own = Wanted("https://shop.example/widget/session", PAGE)
    assert find_blocking([policy], CONNECT, own) is None
