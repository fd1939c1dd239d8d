"""Administrators' keys: shown once, stored hashed, valid for all tenants or for a single one."""

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Self
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
    """The holder of a valid key."""

    id: str
    name: str
    role: Role
    prefix: str
    tenant_id: str | None
    tenant: str | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        is_operator = row["role"] == "operator"
        return cls(
            id=str(row["id"]),
            name=row["name"],
            role=row["role"],
            prefix=row["prefix"],
            tenant_id=None if is_operator else str(row["tenant_id"]),
            tenant=row["slug"],
        )

    @property
    def is_operator(self) -> bool:
        return self.role == "operator"

    @property
    def actor(self) -> str:
        """The name in the audit, with the prefix: names may repeat, prefixes do not."""
        return f"{self.name} ({MARK}{self.prefix})"


@dataclass(frozen=True, slots=True)
class AdminKey:
    """A key as it is listed, without its secret."""

    id: UUID
    name: str
    role: Role
    tenant: str | None
    prefix: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            name=row["name"],
            role=row["role"],
            tenant=row["slug"],
            prefix=MARK + row["prefix"],
            created_at=row["created_at"],
            last_used_at=row["last_used_at"],
            revoked_at=row["revoked_at"],
        )


async def add(
    operators: Database, name: str, slug: str | None = None, change: Change = COMMAND_LINE
) -> tuple[AdminKey, str]:
    """Make a key for all tenants or for one, and return it with its secret, which is not stored."""
    name = name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise TenantError("a key's name has 1 to 100 printable characters")
    tenant = await tenants.find_tenant(operators, slug) if slug else None
    tenant_id = tenant.id if tenant else SERVICE
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
    return AdminKey.from_row(row), key


async def list_keys(operators: Database) -> list[AdminKey]:
    """All keys, revoked ones too, oldest first."""
    return [AdminKey.from_row(row) for row in await operators.all(queries.list_keys)]


async def revoke(operators: Database, shown: str, change: Change = COMMAND_LINE) -> str:
    """Revoke a key, named by the prefix that the list shows; it is refused from now on."""
    found = _SHOWN.fullmatch(shown)
    if found is None:
        raise TenantError("name the key by its first 15 characters, as `hlas admin-key list` does")
    async with operators.transaction() as connection:
        row = await connection.fetchrow(queries.revoke_key, found[1])
        if row is None:
            raise TenantError("there is no such key that is still valid; see `hlas admin-key list`")
        before = {"name": row["name"], "role": row["role"]}
        target = MARK + found[1]
        await record(connection, change, row["tenant_id"], "admin_key.revoke", target, before)
    return target


async def verify(operators: Database, key: str) -> Administrator:
    """Find the holder of a key; text that does not have the form of a key costs no SQL."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise InvalidAdminKey
    given = _hash(key)
    # The prefix is public; the secret is only compared as a whole, in constant time.
    for row in await operators.all(queries.keys_by_prefix, found[1]):
        if hmac.compare_digest(given, row["key_hash"]):
            if row["rested"]:
                await operators.execute(queries.note_use, row["tenant_id"], row["id"])
            return Administrator.from_row(row)
    raise InvalidAdminKey


async def find_administrator(operators: Database, administrator_id: str) -> Administrator:
    """The holder of a key that was verified earlier, unless it was revoked since."""
    row = await operators.one(queries.key_by_id, UUID(administrator_id))
    if row is None:
        raise InvalidAdminKey
    return Administrator.from_row(row)


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _hash(key: str) -> bytes:
    # 238 random bits cannot be guessed: a slow hash would only slow every request down.
    return hashlib.sha256(key.encode()).digest()
