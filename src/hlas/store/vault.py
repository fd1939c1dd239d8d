"""Secrets at rest: keys of providers and servers are stored encrypted and never shown again."""

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hlas.settings import ConfigurationError, Settings

FILE = "secrets-key"
_NONCE_BYTES = 12


class Vault:
    """Seals secrets with SECRETS_KEY. `purpose` binds a sealed secret to the row it belongs to."""

    def __init__(self, key: str) -> None:
        self._key = key

    @classmethod
    def from_settings(cls, settings: Settings) -> "Vault":
        """Without a key the vault stays shut: nothing is sealed, and what is sealed stays so."""
        if settings.secrets_key or not settings.embedded:
            return cls(settings.secrets_key)
        return cls(_read_or_make(settings.data_dir / FILE))

    def seal(self, secret: str, purpose: str) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher().encrypt(nonce, secret.encode(), purpose.encode())

    def open(self, sealed: bytes, purpose: str) -> str:
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, rest, purpose.encode()).decode()
        except (InvalidTag, ValueError):
            raise ConfigurationError(
                "SECRETS_KEY is not the key this secret was encrypted with. Restore the old key, "
                "or enter the secret again."
            ) from None

    def _cipher(self) -> AESGCM:
        if not self._key:
            raise ConfigurationError(
                "SECRETS_KEY: it must be set to store keys of providers and servers; make one "
                "with: openssl rand -base64 48"
            )
        derived = HKDF(SHA256(), 32, salt=None, info=b"hlas vault").derive(self._key.encode())
        return AESGCM(derived)


def _read_or_make(path: Path) -> str:
    """The key in a file. Of processes that make it at the same time, all read the first one's."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Private from the start, and complete before it has its name.
        descriptor, staging = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_urlsafe(48))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                path.hardlink_to(staging)
        finally:
            Path(staging).unlink()
    key = path.read_text("ascii").strip()
    if not key:
        raise ConfigurationError(
            f"{path} is empty: restore it from a backup, or remove it and enter the secrets again"
        )
    return key
