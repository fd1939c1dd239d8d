"""Security headers of every kind of answer, from one place."""

from collections.abc import Mapping
from functools import cache

Headers = tuple[tuple[bytes, bytes], ...]

# What a browser may do with an answer that is data.
DATA_POLICY = {"default-src": "'none'", "frame-ancestors": "'none'"}
# A page of ours: its own files and nothing else, no inline script or style.
PAGE_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}

_ALWAYS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"permissions-policy",
        b"camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
    ),
)
_TLS: Headers = ((b"strict-transport-security", b"max-age=31536000"),)


def content_policy(policy: Mapping[str, str]) -> bytes:
    return "; ".join(f"{name} {sources}" for name, sources in policy.items()).encode()


def page_headers(**changes: str) -> dict[str, str]:
    """For a page of ours; `script_src="'self' …"` changes a line of its policy, "" drops it."""
    policy = PAGE_POLICY | {name.replace("_", "-"): value for name, value in changes.items()}
    kept = {name: sources for name, sources in policy.items() if sources}
    return {"Content-Security-Policy": content_policy(kept).decode()}


@cache
def security_headers(*, own_policy: bool, tls: bool) -> Headers:
    """What is added to every answer; a page that brings its own policy keeps it."""
    data = () if own_policy else ((b"content-security-policy", content_policy(DATA_POLICY)),)
    return _ALWAYS + data + (_TLS if tls else ())
