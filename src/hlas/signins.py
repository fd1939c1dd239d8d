"""Administrators signed in at the console: a random secret in their browser, its hash with us."""

import hashlib
import hmac
import re
import secrets
from uuid import UUID

import uuid_utils

from hlas import administrators
from hlas.administrators import Administrator
from hlas.db import Database, Queries
from hlas.errors import InvalidAdminKey

queries = Queries.beside(__file__)

SECONDS = 12 * 3600
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


def new_secret() -> str:
    return secrets.token_urlsafe(32)


async def begin(operators: Database, key: str) -> tuple[Administrator, str]:
    """Sign the holder of a key in; the secret is what their browser keeps instead of the key."""
    administrator = await administrators.verify(operators, key)
    secret = new_secret()
    identifier = UUID(str(uuid_utils.uuid7()))
    await operators.execute(queries.add_signin, identifier, UUID(administrator.id), _hash(secret))
    await operators.execute(queries.forget_signins)
    return administrator, secret


async def holder(operators: Database, secret: str) -> Administrator:
    """Who is signed in with this secret; what does not look like one costs no SQL."""
    if not _SECRET.fullmatch(secret):
        raise InvalidAdminKey
    row = await operators.one(queries.signin_by_secret, _hash(secret))
    if row is None:
        raise InvalidAdminKey
    if row["rested"]:
        await operators.execute(queries.note_signin, row["tenant_id"], row["id"])
    return await administrators.standing(operators, str(row["administrator_id"]))


async def end(operators: Database, secret: str) -> None:
    await operators.execute(queries.end_signin, _hash(secret))


def form_token(secret: str) -> str:
    """What every form of this browser must carry: a page elsewhere cannot know it."""
    return hmac.new(secret.encode(), b"console form", hashlib.sha256).hexdigest()


def is_form_token(secret: str, given: str) -> bool:
    return hmac.compare_digest(form_token(secret).encode(), given.encode())


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
