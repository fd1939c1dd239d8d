"""Parsers of untrusted input: each gets any bytes, and must accept them or raise a known error.

An unexpected exception, or an accepted value that breaks its guarantee, is a finding. Hypothesis
and the coverage-guided fuzzer use the same targets.
"""

import base64
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import jwt
import orjson

from hlas import payloads
from hlas.conversations import messages
from hlas.conversations.messages import NewMessage
from hlas.doctor import content_policy
from hlas.doctor.content_policy import CONNECT, SCRIPT, Wanted
from hlas.errors import AuthenticationError, HlasError, InvalidIdentity
from hlas.knowledge import files
from hlas.knowledge.entries import KnowledgeError
from hlas.limits.addresses import TrustedProxies, client_address
from hlas.outbound.destinations import Destination, is_public
from hlas.visitors import identities, sessions
from hlas.visitors.keys import FixedKeys
from hlas.visitors.origins import AllowedDomain, Origin
from hlas.visitors.sessions import NewSession
from hlas.visitors.tokens import Tokens

LONGEST = 2000
PROXIES = TrustedProxies.parse("127.0.0.1, 10.0.0.0/8, 2001:db8::/32")
# No clock: what is signed and verified here is the same in every run.
TOKENS = Tokens(FixedKeys(("a secret for the fuzzer, long enough",)), 600, clock=lambda: 1e9)
TOKEN = TOKENS.issue(
    "0190a000-0000-7000-8000-000000000001",
    "0190a000-0000-7000-8000-000000000002",
    "https://shop.example",
    1,
)

IDENTITY_KEY = identities.Key("0123456789abcdef", "HS256", "the secret of a tenant, long enough")
IDENTITY = jwt.encode(
    {"aud": "shop", "sub": "jana", "exp": 1_000_000_060},
    IDENTITY_KEY.material,
    headers={"kid": IDENTITY_KEY.kid},
)
# A header nested as deeply as the size allows.
DEEP = base64.urlsafe_b64encode(b"[" * 1400).rstrip(b"=") + b".e30.e30"


def origin(data: bytes) -> None:
    """An accepted origin has one spelling and parses to itself."""
    text = data.decode("latin-1")
    for parsed in (Origin.parse(text), Origin.of_url(text)):
        if parsed is not None:
            assert Origin.parse(str(parsed)) == parsed
            assert 1 <= parsed.port <= 65535
            assert parsed.hosts[0] == parsed.host
    for given in (text, data.decode("utf-8", "surrogateescape")):
        destination = Destination.parse(given)
        if destination is not None:
            assert Destination.parse(str(destination)) == destination
            assert str(destination).isascii()
            assert str(destination).isprintable()
        assert isinstance(is_public(given), bool)
    with suppress(ValueError):
        entry = AllowedDomain.parse(data.decode("utf-8", "replace"))
        assert AllowedDomain.parse(str(entry)) == entry


def header(data: bytes) -> None:
    """Authorization, Idempotency-Key, X-Forwarded-For: accepted unchanged or refused."""
    values = [value.decode("latin-1") for value in data.split(b"\n")]
    with suppress(HlasError):
        assert " " not in sessions.bearer(values)
    with suppress(HlasError):
        key = messages.parse_key(values)
        assert key is not None
        assert 1 <= len(key) <= 255
        assert key.isascii()
        assert key.isprintable()
    with suppress(HlasError):
        sessions.request_origin(values[:1], values[1:])
    for peer in ("127.0.0.1", "::1", values[0]):
        found = client_address(peer, values, PROXIES)
        assert found is None or len(found) <= 50


def token(data: bytes) -> None:
    """Only issued tokens verify; changing any byte makes a token invalid."""
    for text in (data.decode("latin-1"), splice(TOKEN, data)):
        with suppress(AuthenticationError):
            TOKENS.verify(text)
            assert text == TOKEN, "forged"


def identity(data: bytes) -> None:
    """An identity is accepted only if the tenant's key has signed it."""
    for text in (data.decode("latin-1"), splice(IDENTITY, data)):
        with suppress(InvalidIdentity):
            assert (
                identities.verify(text, {IDENTITY_KEY.kid: IDENTITY_KEY}, {"shop"}, 1e9) == "jana"
            )
            assert text == IDENTITY, "forged"


def splice(token: str, data: bytes) -> str:
    """A valid token with a part replaced by these bytes; the first two bytes say where."""
    place = int.from_bytes(data[:2]) % len(token)
    text = data[2:].decode("latin-1")
    return token[:place] + text + token[place + len(text) :]


def json(data: bytes) -> None:
    """An accepted message or session can be stored, hashed and serialised again."""
    with suppress(HlasError):
        payloads.loads(data)
    with suppress(HlasError):
        message = NewMessage.parse(data, LONGEST)
        assert 1 <= len(message.text) <= LONGEST
        assert message.text == message.text.strip()
        assert not any("\0" in text for text in texts(message.model_dump()))
        again = orjson.dumps({"text": message.text, "metadata": message.metadata})
        assert NewMessage.parse(again, LONGEST).request_hash() == message.request_hash()
    with suppress(HlasError, ValueError):
        session = NewSession.model_validate(payloads.loads(data))
        assert session.visitor_id is None or session.visitor_id.isprintable()


def texts(value: Any) -> Iterator[str]:
    """Every text in a value, including names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def markdown(data: bytes) -> None:
    """A file of questions and answers is read in full, or refused with a line number."""
    for name in ("faq.md", "faq.csv"):
        with suppress(KnowledgeError):
            for entry in files.parse(name, data):
                assert entry.question == entry.question.strip()
                assert entry.answer
                assert "\0" not in entry.question + entry.answer


def policy(data: bytes) -> None:
    """The doctor handles every policy that a website sends."""
    page = Origin("https", "shop.example", 443)
    wanted = Wanted("https://chat.example/widget.js", page, "abc", "sha384-abc")
    policies = content_policy.split(data.decode("latin-1"))
    for directives in (SCRIPT, CONNECT):
        content_policy.find_blocking(policies, directives, wanted)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "origin": origin,
    "header": header,
    "token": token,
    "identity": identity,
    "json": json,
    "markdown": markdown,
    "policy": policy,
}

SEEDS: dict[str, list[bytes]] = {
    "origin": [
        b"https://shop.example",
        b"http://[::1]:3000",
        b"*.shop.example:8443",
        b"https://xn--hky-ela4t.example/a?b#c",
        "https://háčky.example".encode(),
    ],
    "header": [
        b"Bearer abc",
        b'"key-1"',
        b"10.0.0.1, 203.0.113.9:80, [2001:db8::1]:443\n::ffff:1.2.3.4",
        b"https://shop.example\nhttps://shop.example/page",
    ],
    "token": [TOKEN.encode(), b"\0\1" + TOKEN.encode()[:40], DEEP, b"eyJhbGciOiJub25lIn0.e30."],
    "identity": [IDENTITY.encode(), b"\0\1" + IDENTITY.encode()[:40], DEEP],
    "json": [
        b'{"text": "hello", "metadata": {"a": [1, 2.5, null, true, {"b": "c"}]}}',
        b'{"text": "\\ud83d\\ude00", "metadata": null}',
        b'{"visitor_id": "jana", "metadata": {}}',
        b'{"text": "\\u0000"}',
        b'{"text": "\\\\u0000", "metadata": {"\\\\u0000": ["\\\\u0000"]}}',
    ],
    "markdown": [
        b"## When?\nkeywords: a, b\nlanguage: en\n\nNow.\n```\n## no\n```\n## Where?\nHere.\n",
        b'question;answer;keywords;language\n"When?";"Now;\nor later";a;cs\n',
    ],
    "policy": [
        b"default-src 'none'; script-src 'self' https://*.example:* 'nonce-abc', connect-src *",
        b"script-src 'strict-dynamic' 'sha384-abc' http: chat.example:443/a/",
        b"connect-src chat.example:444 https://chat.example:443; script-src chat.example:80",
    ],
}
