"""A tenant's own server: it has keys and signs visitors' identities."""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hlas.visitors import identities
from hlas.visitors.identities import Key

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def pem_of(private: PrivateKey) -> str:
    public = private.public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


class Server:
    """Signs with one key: a secret that Hlas generated, or its own private key."""

    def __init__(
        self, private: PrivateKey | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        if private is None:
            self.key = identities.make_secret()
            self._signing: Any = self.key.material
        else:
            self.key = identities.read_public_key(pem_of(private))
            self._signing = private

    @property
    def known(self) -> dict[str, Key]:
        return {self.key.kid: self.key}

    def sign(self, visitor: Any, audience: Any, **changes: Any) -> str:
        """Sign an identity for ten minutes; a change of None omits that claim."""
        now = int(self._clock())
        claims = {"sub": visitor, "aud": audience, "iat": now, "exp": now + 600, **changes}
        kept = {name: value for name, value in claims.items() if value is not None}
        header = {"kid": self.key.kid}
        return jwt.encode(kept, self._signing, algorithm=self.key.algorithm, headers=header)


def encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def forge(header: dict[str, Any], claims: bytes, secret: bytes = b"") -> str:
    """A token that no library would sign: HMAC with any bytes, or no valid signature."""
    head = f"{encode(orjson.dumps(header))}.{encode(claims)}"
    return f"{head}.{encode(hmac.new(secret, head.encode(), hashlib.sha256).digest())}"
