"""Who a visitor is, as the tenant's own server says: a short token signed with the tenant's key."""

import hashlib
import re
import secrets
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from jwt.types import Options

from hlas.errors import InvalidIdentity

Algorithm = Literal["HS256", "ES256", "RS256"]

LONGEST = 4096
LONGEST_LIFE_SECONDS = 24 * 3600
LEEWAY_SECONDS = 30
LONGEST_SUBJECT = 128
LONGEST_PUBLIC_KEY = 4096
# Whoever uploads a key decides what each check of it costs: no giant modulus, no giant exponent.
RSA_BITS = (2048, 4096)
LARGEST_EXPONENT = 2**32

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# The claims are judged below, by exact type; what the library would accept is too much.
_SIGNATURE_ALONE: Options = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


@dataclass(frozen=True, slots=True)
class Key:
    """What a tenant signs with, as we check it: a shared secret or a public key in PEM."""

    kid: str
    algorithm: Algorithm
    material: str = field(repr=False)


def make_secret() -> Key:
    """A secret that we must keep as it is, since checking a signature of it needs it."""
    secret = secrets.token_urlsafe(48)
    return Key(_fingerprint(secret), "HS256", secret)


def read_public_key(pem: str) -> Key:
    """A tenant's public key; a ValueError says what is wrong with it."""
    if len(pem) > LONGEST_PUBLIC_KEY:
        raise ValueError("this is too long for a public key")
    if "PRIVATE KEY" in pem:
        raise ValueError("this is a private key: keep it to yourself and give its public one")
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("write a public key in PEM: -----BEGIN PUBLIC KEY----- ...") from None
    algorithm = _algorithm_of(key)
    kept = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return Key(_fingerprint(kept), algorithm, kept)


def _algorithm_of(key: object) -> Algorithm:
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return "ES256"
    if isinstance(key, RSAPublicKey):
        least, most = RSA_BITS
        if least <= key.key_size <= most and key.public_numbers().e < LARGEST_EXPONENT:
            return "RS256"
    raise ValueError("the key must be elliptic on P-256 or RSA of 2048 to 4096 bits")


def _fingerprint(material: str) -> str:
    return hashlib.sha256(b"hlas-visitor-kid:" + material.encode()).hexdigest()[:16]


def verify(token: str, keys: Mapping[str, Key], audiences: Container[str], now: float) -> str:
    """The visitor a token names; any doubt is InvalidIdentity, with a reason for the log."""
    if len(token) > LONGEST or not _FORM.fullmatch(token):
        raise InvalidIdentity("malformed")
    claims = _signed(token, keys)
    _require_time(claims, now)
    # A token of one tenant is of no use elsewhere, even if the same key was given to both.
    audience = claims.get("aud")
    if not isinstance(audience, str) or audience not in audiences:
        raise InvalidIdentity("audience")
    return _subject(claims)


def _signed(token: str, keys: Mapping[str, Key]) -> dict[str, Any]:
    """The claims, if one of the tenant's keys signed them the way that key signs."""
    try:
        header = jwt.get_unverified_header(token)
        key = keys.get(header.get("kid", ""))
        if key is None:
            raise InvalidIdentity("unknown_key")
        if "crit" in header:
            raise InvalidIdentity("malformed")
        # The algorithm is the key's: what the token says about it decides nothing.
        claims: dict[str, Any] = jwt.decode(
            token, key.material, algorithms=[key.algorithm], options=_SIGNATURE_ALONE
        )
    except jwt.DecodeError as error:
        is_signature = isinstance(error, jwt.InvalidSignatureError)
        raise InvalidIdentity("signature" if is_signature else "malformed") from None
    except jwt.InvalidAlgorithmError:
        raise InvalidIdentity("algorithm") from None
    except (jwt.PyJWTError, TypeError, ValueError, RecursionError):
        raise InvalidIdentity("malformed") from None
    return claims


def _require_time(claims: Mapping[str, Any], now: float) -> None:
    """`exp` is needed and near; `iat` and `nbf` must make sense where they are given."""
    expires = claims.get("exp")
    given = [claims[name] for name in ("exp", "iat", "nbf") if name in claims]
    # An exact type: True is an int for Python, and 1e9 a time for others.
    if expires is None or any(type(moment) is not int for moment in given):
        raise InvalidIdentity("times")
    if expires + LEEWAY_SECONDS <= now:
        raise InvalidIdentity("expired")
    # Whole numbers alone: an `exp` of hundreds of digits fits into no float.
    latest = int(now) + LEEWAY_SECONDS
    if max(claims.get("iat", 0), claims.get("nbf", 0)) > latest:
        raise InvalidIdentity("not_yet")
    if expires - min(claims.get("iat", latest), latest) > LONGEST_LIFE_SECONDS:
        raise InvalidIdentity("lives_too_long")


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= LONGEST_SUBJECT:
        raise InvalidIdentity("subject")
    if not subject.isprintable() or not subject.strip():
        raise InvalidIdentity("subject")
    return subject
