"""What a page carries from one form to the next: the browser returns it unchanged or not at all."""

import hashlib
import hmac
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error

from hlas.errors import FormRefused


def seal(secret: str, data: bytes) -> str:
    """Valid for as long as the sign-in with this secret."""
    text = urlsafe_b64encode(zlib.compress(data)).decode()
    return f"{_sign(secret, text)}.{text}"


def unseal(secret: str, sealed: str) -> bytes:
    signature, _, text = sealed.partition(".")
    if not hmac.compare_digest(_sign(secret, text).encode(), signature.encode()):
        raise FormRefused
    try:
        return zlib.decompress(urlsafe_b64decode(text))
    except (Error, zlib.error):
        raise FormRefused from None


def _sign(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), f"console seal {text}".encode(), hashlib.sha256).hexdigest()
