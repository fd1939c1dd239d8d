"""Sign-ins at the console: the browser keeps a random secret, the database its hash."""

import asyncio
import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Collection
from uuid import UUID

import uuid_utils

from hlas.errors import InvalidAdminKey
from hlas.operators import administrators
from hlas.operators.administrators import Administrator
from hlas.store.db import Database, Queries

queries = Queries.beside(__file__)

SECONDS = 12 * 3600
# How often, at most, a process loads the valid digests while there are many failed attempts.
LOAD_SECONDS = 0.25
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def new_secret() -> str:
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Whether a text has the form of a secret."""
    return _SECRET.fullmatch(text) is not None


async def begin(operators: Database, administrator: Administrator) -> str:
    """Sign in the holder of a verified key; the browser keeps the secret instead of the key."""
    secret = new_secret()
    identifier, holder_id = UUID(str(uuid_utils.uuid7())), UUID(administrator.id)
    await operators.execute(queries.add_signin, identifier, holder_id, digest(secret))
    await operators.execute(queries.forget_signins, holder_id)
    return secret


async def find_administrator(operators: Database, secret: str) -> Administrator:
    """Find who is signed in with this secret; text without its form costs no SQL."""
    if not is_secret(secret):
        raise InvalidAdminKey
    row = await operators.one(queries.signin_by_secret, digest(secret))
    if row is None:
        raise InvalidAdminKey
    if row["rested"]:
        await operators.execute(queries.note_signin, row["tenant_id"], row["id"])
    return await administrators.find_administrator(operators, str(row["administrator_id"]))


async def end(operators: Database, secret: str) -> None:
    await operators.execute(queries.end_signin, digest(secret))


async def find_valid(operators: Database, digests: Collection[bytes]) -> set[bytes]:
    """Those that belong to a key or a sign-in that is still valid."""
    rows = await operators.all(queries.valid_digests, list(digests))
    return {row["digest"] for row in rows}


def form_token(secret: str) -> str:
    """The CSRF token of this browser's forms: another site cannot know it."""
    return hmac.new(secret.encode(), b"console form", hashlib.sha256).hexdigest()


def is_form_token(secret: str, given: str) -> bool:
    # Without a secret the token would be a constant that anybody can compute.
    return is_secret(secret) and hmac.compare_digest(form_token(secret).encode(), given.encode())


class KnownSecrets:
    """Digests of every key and sign-in that is valid.

    They tell valid secrets from guesses without a query for each guess.
    """

    def __init__(self, operators: Database) -> None:
        self._operators = operators
        self._digests: frozenset[bytes] = frozenset()
        self._loaded_at = -math.inf
        self._loading = asyncio.Lock()

    async def contain(self, secret: str) -> bool:
        given, asked_at = digest(secret), time.monotonic()
        await self._load(asked_at - LOAD_SECONDS)
        if given not in self._digests:
            # The secret may be newer than the digests: only newly loaded digests can refuse it.
            await self._load(asked_at)
        return given in self._digests

    async def _load(self, since: float) -> None:
        """Load digests that are not older than `since`, but at most every LOAD_SECONDS."""
        if self._loaded_at >= since:
            return
        async with self._loading:
            if self._loaded_at >= since:
                return
            await asyncio.sleep(self._loaded_at + LOAD_SECONDS - time.monotonic())
            began_at = time.monotonic()
            try:
                rows = await self._operators.all(queries.valid_digests, None)
                self._digests = frozenset(row["digest"] for row in rows)
            finally:
                # Also after a failure; otherwise every attempt would reach the database.
                self._loaded_at = began_at


def digest(secret: str) -> bytes:
    """Of a key or the secret of a sign-in, as the database stores it."""
    return hashlib.sha256(secret.encode()).digest()
