"""Database logins: the owner in DATABASE_URL, and one for each role.

The passwords of the roles are derived from that of the owner, so every host that has DATABASE_URL
can log in, and nothing has to be stored or handed out (ADR-0010).
"""

import hmac
import os
from base64 import b64encode
from dataclasses import dataclass, replace
from hashlib import pbkdf2_hmac, sha256
from typing import Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

from hlas.settings import DEFAULT_ROLE_PREFIX, ConfigurationError, Settings

APPLICATION: Final = "app"
OPERATOR: Final = "operator"
TENANT_ADMIN: Final = "tenant_admin"
WRITER: Final = "writer"
RESOLVER: Final = "resolver"

# These log in; the others only own functions.
LOGIN_ROLES: Final = (APPLICATION, OPERATOR, TENANT_ADMIN)
OWNING_ROLES: Final = (WRITER, RESOLVER)

# PostgreSQL's own default; the password is random enough to need none.
ITERATIONS = 4096


@dataclass(frozen=True)
class Login:
    """A role's name and its password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user})"


@dataclass(frozen=True, repr=False)
class Logins:
    """The database of one installation, and everybody who logs in to it."""

    owner_url: str
    prefix: str = DEFAULT_ROLE_PREFIX
    # Empty: the password in `owner_url`.
    secret: str = ""

    @classmethod
    def from_settings(cls, settings: Settings, owner_url: str = "") -> Self:
        """`owner_url` stands in for DATABASE_URL when the database is embedded."""
        return cls(
            owner_url or settings.database_url,
            settings.database_role_prefix,
            settings.database_login_secret,
        )

    def at(self, owner_url: str) -> Self:
        """The same roles in another database."""
        return replace(self, owner_url=owner_url, secret=self._key)

    def role(self, name: str) -> str:
        """The role's name on the server."""
        return f"{self.prefix}_{name}"

    def login(self, name: str) -> Login:
        role = self.role(name)
        # Without the database's name: a restored database is renamed.
        digest = hmac.digest(self._key.encode(), f"hlas login {role}".encode(), "sha256")
        return Login(role, digest.hex())

    @property
    def _key(self) -> str:
        key = self.secret or _password(self.owner_url)
        if not key:
            raise ConfigurationError(
                "DATABASE_LOGIN_SECRET: it must be set, because DATABASE_URL holds no password to "
                "derive the passwords of the serving roles from; make one with: "
                "openssl rand -base64 48"
            )
        return key


def _password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password:
        return unquote(parts.password)
    return parse_qs(parts.query).get("password", [""])[-1]


def scram_verifier(password: str) -> str:
    """What PostgreSQL stores instead of a password (RFC 5803): it does not let anybody log in."""
    salt = os.urandom(16)
    salted = pbkdf2_hmac("sha256", password.encode(), salt, ITERATIONS)
    stored_key = sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    parts = (b64encode(part).decode() for part in (salt, stored_key, server_key))
    return "SCRAM-SHA-256${}:{}${}:{}".format(ITERATIONS, *parts)
