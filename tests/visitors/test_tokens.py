"""Widget tokens: format, claims and lifetime."""

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest

from hlas import errors
from hlas.visitors.keys import RELOAD_SECONDS, FileKeys, FixedKeys
from hlas.visitors.tokens import AUDIENCE, LEEWAY_SECONDS, Session, Tokens, key_id

SECRET = "the secret that signs in these tests"
OTHER = "a secret that this service never had"
TENANT = "0190a5c0-0000-7000-8000-000000000001"
CONVERSATION = "0190a5c0-0000-7000-8000-000000000002"
ORIGIN = "https://shop.example"
TTL = 600
NOW = 1_800_000_000


class Clock:
    def __init__(self) -> None:
        self.now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> Tokens:
    return Tokens(FixedKeys((SECRET,)), TTL, clock)


def claims(**changes: Any) -> dict[str, Any]:
    given = {
        "aud": AUDIENCE,
        "tid": TENANT,
        "cid": CONVERSATION,
        "org": ORIGIN,
        "gen": 1,
        "iat": NOW,
        "exp": NOW + TTL,
        **changes,
    }
    return {name: value for name, value in given.items() if value is not ...}


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).decode().rstrip("=")


def sign(head: Any, said: Any, secret: str = SECRET) -> str:
    """A token with any header and claims, signed with HS256."""
    text = f"{part(head)}.{part(said)}"
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def header(**changes: Any) -> dict[str, Any]:
    given = {"alg": "HS256", "typ": "JWT", "kid": key_id(SECRET), **changes}
    return {name: value for name, value in given.items() if value is not ...}


def test_round_trip(tokens: Tokens) -> None:
    """Verifying a token returns what it was issued for."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 3)
    assert tokens.verify(token) == Session(TENANT, CONVERSATION, ORIGIN, 3, NOW + TTL, 0, NOW)
    assert tokens.verify(sign(header(), claims())).generation == 1


@pytest.mark.parametrize(("vouched_until", "opened_at"), [(0, None), (NOW + 60, NOW - 5)])
def test_remembered_as_issued(
    tokens: Tokens, clock: Clock, vouched_until: int, opened_at: int | None
) -> None:
    """The worker that issued a token and one that verifies it get the same session."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 3, vouched_until, opened_at)
    other = Tokens(FixedKeys((SECRET,)), TTL, clock)
    assert tokens.verify(token) == other.verify(token)


@pytest.mark.parametrize(
    "changes",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": "hs256"},
        {"alg": "HS384"},
        {"alg": "HS512"},
        {"alg": "RS256"},
        {"alg": "ES256"},
        {"alg": ""},
        {"alg": 5},
        {"alg": ...},
        {"kid": key_id(OTHER)},
        {"kid": "../../etc/passwd"},
        {"kid": ""},
        {"kid": 1},
        {"kid": None},
        {"kid": [key_id(SECRET)]},
        {"kid": ...},
        {"typ": "at+jwt"},
        {"typ": ...},
        {"crit": ["exp"]},
        {"b64": False},
    ],
)
def test_header(tokens: Tokens, changes: dict[str, Any]) -> None:
    """Edge case 39: another algorithm, none, an unknown or invalid kid: invalid_token."""
    with pytest.raises(errors.InvalidToken):
        tokens.verify(sign(header(**changes), claims()))


def test_unsigned(tokens: Tokens) -> None:
    """Edge case 39: alg none without a signature, and our header without one, are refused."""
    text = f"{part(header(alg='none'))}.{part(claims())}"
    for token in (text, f"{text}.", f"{part(header())}.{part(claims())}.", f"{text}.AA"):
        with pytest.raises(errors.InvalidToken):
            tokens.verify(token)


@pytest.mark.parametrize("secret", [OTHER, "", SECRET + " "])
def test_another_key(tokens: Tokens, secret: str) -> None:
    """Edge case 39: a signature by another key, or by an empty one, is refused."""
    for head in (header(), header(typ="X"), header(kid="")):
        with pytest.raises(errors.InvalidToken):
            tokens.verify(sign(head, claims(), secret))


def test_another_algorithm_really_signed(tokens: Tokens) -> None:
    """Edge case 39: HS512 with our own secret is refused."""
    token = jwt.encode(claims(), SECRET * 2, algorithm="HS512", headers={"kid": key_id(SECRET)})
    with pytest.raises(errors.InvalidToken):
        tokens.verify(token)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token + "=",
        lambda token: token + "==",
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token + ".x",
        lambda token: token.replace(".", "..", 1),
        lambda token: token.upper(),
        lambda token: f" {token}",
        lambda token: f"{token}\n",
        lambda token: token.replace(".", "=.", 1),
        lambda token: token + "A" * 5000,
        lambda _: "a" * 5000,
        lambda _: "a.b.c",
        lambda _: "",
        lambda _: "..",
        lambda _: "é.é.é",
    ],
)
def test_form(tokens: Tokens, spoil: Any) -> None:
    """Edge case 39: padding, other spellings, 5 KB and garbage are refused."""
    with pytest.raises(errors.InvalidToken):
        tokens.verify(spoil(tokens.issue(TENANT, CONVERSATION, ORIGIN, 1)))


def test_one_spelling(tokens: Tokens) -> None:
    """Edge case 39: the unused bits of the last character do not make a second valid token."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    for letter in alphabet.replace(token[-1], ""):
        with pytest.raises(errors.InvalidToken):
            tokens.verify(token[:-1] + letter)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "another"},
        {"aud": [AUDIENCE]},
        {"aud": ...},
        {"exp": str(NOW + TTL)},
        {"exp": float(NOW + TTL)},
        {"exp": True},
        {"exp": None},
        {"exp": ...},
        {"iat": "now"},
        {"iat": ...},
        {"gen": "1"},
        {"gen": ...},
        {"tid": ...},
        {"tid": 5},
        {"tid": ""},
        {"tid": TENANT.replace("-", "")},
        {"tid": f"{{{TENANT}}}"},
        {"tid": TENANT.upper()[:-1] + "A"},
        {"cid": ...},
        {"cid": None},
        {"cid": "' or 1=1 --"},
        {"org": ...},
        {"org": None},
    ],
)
def test_claims(tokens: Tokens, changes: dict[str, Any]) -> None:
    """Edge case 39: a valid signature over claims of other types or values: invalid_claims."""
    with pytest.raises(errors.InvalidClaims):
        tokens.verify(sign(header(), claims(**changes)))


def test_claims_that_are_no_object(tokens: Tokens) -> None:
    """Edge case 39: a signed array or text is refused."""
    others: tuple[Any, ...] = ([], "text", 5, None)
    for said in others:
        with pytest.raises(errors.AuthenticationError):
            tokens.verify(sign(header(), said))


def test_expiry(tokens: Tokens, clock: Clock) -> None:
    """Edge case 39: a token is valid until its expiry plus at most 60 s, cached or not."""
    assert LEEWAY_SECONDS <= 60
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1)
    clock.now = NOW + TTL + LEEWAY_SECONDS - 1
    tokens.verify(token)
    clock.now = NOW + TTL + LEEWAY_SECONDS
    for _ in range(2):
        with pytest.raises(errors.TokenExpired):
            tokens.verify(token)
    with pytest.raises(errors.TokenExpired):
        Tokens(FixedKeys((SECRET,)), TTL, clock).verify(token)


def test_verified_sessions_expire(tokens: Tokens, clock: Clock) -> None:
    """A verified session is refreshed only until its identity has to be presented again."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1, NOW + TTL)
    clock.now = NOW + TTL - 1
    assert tokens.verify_for_refresh(token, 10**6, 10**6).vouched_until == NOW + TTL
    clock.now = NOW + TTL
    with pytest.raises(errors.SessionExpired):
        tokens.verify_for_refresh(token, 10**6, 10**6)


def test_refresh_window(tokens: Tokens, clock: Clock) -> None:
    """An expired token can be refreshed within the window, and not a second longer."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1)
    clock.now = NOW + TTL + 3599
    assert tokens.verify_for_refresh(token, 3600, 10**6).conversation_id == CONVERSATION
    clock.now = NOW + TTL + 3600
    with pytest.raises(errors.SessionExpired):
        tokens.verify_for_refresh(token, 3600, 10**6)


def test_a_session_ends(tokens: Tokens, clock: Clock) -> None:
    """However often it is refreshed, a session ends at its maximum age."""
    token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1)
    for hour in range(24):
        clock.now = NOW + hour * 3600
        session = tokens.verify_for_refresh(token, 3600, 86400)
        assert session.opened_at == NOW
        token = tokens.issue(TENANT, CONVERSATION, ORIGIN, 1, 0, session.opened_at)
    clock.now = NOW + 86400 - 1
    tokens.verify_for_refresh(token, 3600, 86400)
    clock.now = NOW + 86400
    with pytest.raises(errors.SessionExpired):
        tokens.verify_for_refresh(token, 3600, 86400)


def test_tokens_without_a_time_of_opening(tokens: Tokens, clock: Clock) -> None:
    """A token of an earlier version, without a time of opening, counts from its issue."""
    old = claims()
    old.pop("opn", None)
    token = sign(header(), old)
    assert tokens.verify_for_refresh(token, 10**6, 10**6).opened_at == old["iat"]


def test_rotation(clock: Clock) -> None:
    """Edge case 39: the first secret signs, all verify, and a removed one verifies no more."""
    old = Tokens(FixedKeys((OTHER,)), TTL, clock).issue(TENANT, CONVERSATION, ORIGIN, 1)
    both = Tokens(FixedKeys((SECRET, OTHER)), TTL, clock)
    both.verify(old)
    fresh = both.issue(TENANT, CONVERSATION, ORIGIN, 1)
    assert jwt.get_unverified_header(fresh)["kid"] == key_id(SECRET)
    with pytest.raises(errors.InvalidToken):
        Tokens(FixedKeys((SECRET,)), TTL, clock).verify(old)


def test_cache_is_bounded(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of cached tokens is bounded."""
    monkeypatch.setattr("hlas.visitors.tokens.CACHED", 10)
    for generation in range(50):
        tokens.verify(tokens.issue(TENANT, CONVERSATION, ORIGIN, generation))
    assert len(tokens._verified) == 10


def test_key_file(tmp_path: Path) -> None:
    """Secrets are generated once, private, and a rotation by another process is noticed."""
    path = tmp_path / "data" / "widget-secrets.json"
    first = FileKeys(path)
    first.rotate()
    assert path.stat().st_mode & 0o777 == 0o600
    before = first.secrets()
    assert len(before) == 1
    assert len(before[0].encode()) >= 32
    FileKeys(path).rotate()
    assert first.secrets() == before, "looked at the file again too early"
    first._next_reload -= RELOAD_SECONDS
    after = first.secrets()
    assert len(after) == 2
    assert after[1] == before[0]


def test_damaged_key_file(tmp_path: Path) -> None:
    """A key file that is damaged while the service runs does not end open sessions."""
    path = tmp_path / "widget-secrets.json"
    keys = FileKeys(path)
    keys.rotate()
    before = keys.secrets()
    for damage in (b"", b"[]", b'{"secrets": 5}', b'{"secrets": []}', b"\xff"):
        path.write_bytes(damage)
        keys._next_reload = 0.0
        keys._stamp = 0
        assert keys.secrets() == before
