"""Administrators' keys: shown once, kept hashed, one reach each: all tenants or a single one."""

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import uuid_utils

from hlas.errors import InvalidAdminKey, TenantError
from hlas.store.db import Database, Queries, Row
from hlas.tenants import tenants
from hlas.tenants.audit import COMMAND_LINE, SERVICE, Change, record

queries = Queries.beside(__file__)

Role = Literal["operator", "tenant"]

MARK = "hlas_"
# Letters and digits only: a double click selects the whole key.
_ALPHABET = string.ascii_letters + string.digits
_PREFIX_LENGTH = 10
_SECRET_LENGTH = 40
_KEY = re.compile(rf"{MARK}([A-Za-z0-9]{{{_PREFIX_LENGTH}}})[A-Za-z0-9]{{{_SECRET_LENGTH}}}")
_SHOWN = re.compile(rf"(?:{MARK})?([A-Za-z0-9]{{{_PREFIX_LENGTH}}})(?:[A-Za-z0-9]*)")


@dataclass(frozen=True, slots=True)
class Administrator:
    """Whoever holds a key that stands."""

    id: str
    name: str
    role: Role
    prefix: str
    tenant_id: str | None
    tenant: str | None

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def actor(self) -> str:
        """As the audit names them: names may be alike, prefixes are not."""
        return f"{self.name} ({MARK}{self.prefix})"


async def add(
    operators: Database, name: str, slug: str | None = None, change: Change = COMMAND_LINE
) -> tuple[dict[str, Any], str]:
    """A new key, to all tenants or to one; the key itself is nowhere afterwards but with you."""
    name = name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise TenantError("a key's name has 1 to 100 printable characters")
    tenant = await tenants.by_slug(operators, slug) if slug else None
    tenant_id = UUID(tenant["id"]) if tenant else SERVICE
    role: Role = "tenant" if tenant else "operator"
    prefix, secret = _random(_PREFIX_LENGTH), _random(_SECRET_LENGTH)
    key = f"{MARK}{prefix}{secret}"
    identifier = UUID(str(uuid_utils.uuid7()))
    async with operators.transaction() as connection:
        row = await connection.fetchrow(
            queries.add_key, tenant_id, identifier, name, role, prefix, _hash(key)
        )
        after = {"name": name, "role": role, "tenant": slug}
        await record(connection, change, tenant_id, "admin_key.add", MARK + prefix, after=after)
    return _described(row, slug), key


async def listed(operators: Database) -> list[dict[str, Any]]:
    """Every key there was, oldest first; nothing that would let anybody in."""
    return [_described(row, row["slug"]) for row in await operators.all(queries.list_keys)]


async def revoke(operators: Database, shown: str, change: Change = COMMAND_LINE) -> str:
    """End a key at once; known by what the list shows of it."""
    found = _SHOWN.fullmatch(shown)
    if found is None:
        raise TenantError("name the key by its first 15 characters, as `hlas admin-key list` does")
    async with operators.transaction() as connection:
        row = await connection.fetchrow(queries.revoke_key, found[1])
        if row is None:
            raise TenantError("there is no such key that still stands; see `hlas admin-key list`")
        before = {"name": row["name"], "role": row["role"]}
        target = MARK + found[1]
        await record(connection, change, row["tenant_id"], "admin_key.revoke", target, before)
    return target


async def verify(operators: Database, key: str) -> Administrator:
    """Whose key this is; what does not look like one costs no SQL."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise InvalidAdminKey
    given = _hash(key)
    # The prefix is public; what is secret is only ever compared as a whole, in constant time.
    for row in await operators.all(queries.keys_by_prefix, found[1]):
        if hmac.compare_digest(given, row["key_hash"]):
            if row["rested"]:
                await operators.execute(queries.note_use, row["tenant_id"], row["id"])
            return _administrator(row)
    raise InvalidAdminKey


async def standing(operators: Database, administrator_id: str) -> Administrator:
    """The holder of a key that was verified earlier, if it was not revoked since."""
    row = await operators.one(queries.key_by_id, UUID(administrator_id))
    if row is None:
        raise InvalidAdminKey
    return _administrator(row)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(key: str) -> bytes:
    # 238 random bits cannot be guessed: a slow hash would only slow every request down.
    return hashlib.sha256(key.encode()).digest()


def _administrator(row: Row) -> Administrator:
    is_operator = row["role"] == "operator"
    return Administrator(
        id=str(row["id"]),
        name=row["name"],
        role=row["role"],
        prefix=row["prefix"],
        tenant_id=None if is_operator else str(row["tenant_id"]),
        tenant=row["slug"],
    )


def _described(row: Row, slug: str | None) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "name": row["name"],
        "role": row["role"],
        "tenant": slug,
        "prefix": MARK + row["prefix"],
        "created_at": row["created_at"],
        "last_used_at": row["last_used_at"],
        "revoked_at": row["revoked_at"],
    }
