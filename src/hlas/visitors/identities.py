"""Visitors' identities: short-lived tokens that the tenant's own server signs."""

import hashlib
import re
import secrets
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

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
# Bounds the cost of verifying with an uploaded key.
RSA_BITS = (2048, 4096)
LARGEST_EXPONENT = 2**32

_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# We check the claims ourselves, by exact type; the library is too permissive.
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
    """A tenant's key for verifying: a shared secret or a public key in PEM."""

    kid: str
    algorithm: Algorithm
    material: str = field(repr=False)


def make_secret() -> Key:
    """Generate a shared secret; it is stored in plain text, because verifying needs it."""
    secret = secrets.token_urlsafe(48)
    return Key(_fingerprint(secret), "HS256", secret)


def read_public_key(pem: str) -> Key:
    """Parse a tenant's public key; a ValueError says what is wrong with it."""
    if len(pem) > LONGEST_PUBLIC_KEY:
        raise ValueError("the public key is too long")
    if "PRIVATE KEY" in pem:
        raise ValueError("this is a private key: keep it secret and use its public key instead")
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("a public key in PEM is needed: -----BEGIN PUBLIC KEY----- ...") from None
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
    raise ValueError(
        "the key must be an elliptic-curve key on P-256 or an RSA key of 2048 to 4096 bits"
    )


def _fingerprint(material: str) -> str:
    return hashlib.sha256(b"hlas-visitor-kid:" + material.encode()).hexdigest()[:16]


def verify(token: str, keys: Mapping[str, Key], audiences: Container[str], now: float) -> str:
    """Return the visitor id of a valid token; raise InvalidIdentity with a reason for the log."""
    if len(token) > LONGEST or not _FORM.fullmatch(token):
        raise InvalidIdentity("malformed")
    claims = _verify_signature(token, keys)
    _require_valid_times(claims, now)
    # A token of one tenant is useless at another, even if both have the same key.
    audience = claims.get("aud")
    if not isinstance(audience, str) or audience not in audiences:
        raise InvalidIdentity("audience")
    return _require_subject(claims)


def _verify_signature(token: str, keys: Mapping[str, Key]) -> dict[str, object]:
    """Return the claims if one of the tenant's keys signed them with its own algorithm."""
    try:
        header = jwt.get_unverified_header(token)
        key = keys.get(header.get("kid", ""))
        if key is None:
            raise InvalidIdentity("unknown_key")
        if "crit" in header:
            raise InvalidIdentity("malformed")
        # The key decides the algorithm, not the token.
        claims: dict[str, object] = jwt.decode(
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


def _require_valid_times(claims: Mapping[str, object], now: float) -> None:
    """Require a near `exp`; check `iat` and `nbf` if they are present."""
    times = _read_times(claims)
    expires = times["exp"]
    if expires + LEEWAY_SECONDS <= now:
        raise InvalidIdentity("expired")
    # Integer arithmetic: an `exp` of hundreds of digits does not fit into a float.
    latest = int(now) + LEEWAY_SECONDS
    if max(times.get("iat", 0), times.get("nbf", 0)) > latest:
        raise InvalidIdentity("not_yet")
    if expires - min(times.get("iat", latest), latest) > LONGEST_LIFE_SECONDS:
        raise InvalidIdentity("lives_too_long")


def _read_times(claims: Mapping[str, object]) -> dict[str, int]:
    times: dict[str, int] = {}
    for name in ("exp", "iat", "nbf"):
        if name in claims:
            moment = claims[name]
            # The exact type: in Python True is an int, and other libraries accept 1e9.
            if type(moment) is not int:
                raise InvalidIdentity("times")
            times[name] = moment
    if "exp" not in times:
        raise InvalidIdentity("times")
    return times


def _require_subject(claims: Mapping[str, object]) -> str:
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 1 <= len(subject) <= LONGEST_SUBJECT:
        raise InvalidIdentity("subject")
    if not subject.isprintable() or not subject.strip():
        raise InvalidIdentity("subject")
    return subject
