"""Signing secrets, from the environment or from a private file in DATA_DIR."""

import os
import secrets
import time
from pathlib import Path

import orjson

from hlas.settings import ConfigurationError, Settings

KEPT = 3
RELOAD_SECONDS = 5.0


class FixedKeys:
    def __init__(self, values: tuple[str, ...]) -> None:
        self._values = values

    def secrets(self) -> tuple[str, ...]:
        return self._values


class FileKeys:
    """Secrets in a 0600 file, newest first; a rotation is picked up without a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: tuple[str, ...] = ()
        self._stamp = 0
        self._next_reload = 0.0

    def secrets(self) -> tuple[str, ...]:
        now = time.monotonic()
        if now >= self._next_reload:
            self._next_reload = now + RELOAD_SECONDS
            self._reload()
        return self._values

    def _reload(self) -> None:
        try:
            stamp = self.path.stat().st_mtime_ns
            if stamp != self._stamp:
                first, *rest = orjson.loads(self.path.read_bytes())["secrets"]
                self._values = (str(first), *map(str, rest))
                self._stamp = stamp
        except (OSError, ValueError, KeyError, TypeError):
            # A file that is being replaced or is damaged must not end running sessions.
            if not self._values:
                raise

    def rotate(self) -> None:
        """Add a new secret, which signs from now on; the previous ones still verify."""
        current = self.secrets() if self.path.exists() else ()
        fresh = (secrets.token_urlsafe(48), *current)[:KEPT]
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        staging = self.path.with_suffix(".new")
        staging.unlink(missing_ok=True)
        descriptor = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps({"secrets": fresh}))
            file.flush()
            os.fsync(file.fileno())
        staging.replace(self.path)
        self._next_reload = 0.0


def from_settings(settings: Settings) -> FixedKeys | FileKeys:
    if settings.signing_secrets:
        return FixedKeys(settings.signing_secrets)
    if not settings.embedded:
        raise ConfigurationError(
            "WIDGET_SESSION_JWT_SECRET: required when DATABASE_URL is set; "
            "make one with: openssl rand -base64 48"
        )
    keys = FileKeys(settings.data_dir / "widget-secrets.json")
    if not keys.path.exists():
        keys.rotate()
    return keys
