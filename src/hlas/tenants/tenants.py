"""Tenants and the domains they allow; every change leaves one row in events."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
import uuid_utils
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from hlas.errors import DomainNotFound, DomainTaken, SlugTaken, TenantError, TenantNotFound
from hlas.limits import Limit
from hlas.limits.rules import OVERRIDES
from hlas.payloads import Text, one_line
from hlas.store.db import Database, Queries, Row
from hlas.tenants import revisions
from hlas.tenants.audit import COMMAND_LINE, Change, record
from hlas.tenants.looks import Looks
from hlas.tenants.revisions import Expected
from hlas.visitors.origins import LOCAL_HOSTS, AllowedDomain

queries = Queries.beside(__file__)

SLUG = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _domain(text: str) -> str:
    try:
        return str(AllowedDomain.parse(text))
    except ValueError:
        raise PydanticCustomError("invalid_domain", "invalid domain") from None


def _limits(given: dict[str, str]) -> dict[str, str]:
    checked: dict[str, str] = {}
    for name, text in given.items():
        if name not in OVERRIDES:
            raise PydanticCustomError("unknown_limit", "unknown limit")
        try:
            checked[name] = str(Limit.parse(text) or "off")
        except ValueError:
            raise PydanticCustomError("invalid_limit", "invalid limit") from None
    return checked


Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    AfterValidator(one_line),
]
Domain = Annotated[str, Field(max_length=300), AfterValidator(_domain)]
Fallback = Annotated[Text, Field(min_length=1, max_length=4000)]
IdentityMode = Literal["off", "optional", "required"]


class NewTenant(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    slug: str = Field(pattern=SLUG)
    domains: list[Domain] = Field(default_factory=list, max_length=100)
    ui_config: Looks = Field(default_factory=Looks)
    fallback_text: Fallback | None = None


class TenantChanges(BaseModel):
    """What is left out stays as it is; `ui_config` and `limits` are replaced as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name = Field("")
    is_active: bool = Field(default=True, description="operators only")
    ui_config: Looks = Field(default_factory=Looks)
    fallback_text: Fallback | None = Field(None, description="null: the widget's own words")
    limits: Annotated[dict[str, str], AfterValidator(_limits)] = Field(
        default_factory=dict,
        description=f"operators only: {', '.join(OVERRIDES)}, as 30/min or off",
    )
    retention_days: Annotated[int, Field(ge=1, le=36500)] | None = Field(
        None, description="conversations without a message for so long are deleted; null: kept"
    )
    identity_mode: IdentityMode = Field(
        "off", description="whether visitors' identities, signed by the tenant, are looked at"
    )

    def given(self) -> dict[str, Any]:
        """Only what was said, as it is stored."""
        values = self.model_dump(include=self.model_fields_set)
        if "ui_config" in values:
            values["ui_config"] = self.ui_config.model_dump(exclude_none=True)
        return values


# What decides over others' visitors and the service's costs is not the tenant's to change.
OPERATORS_ONLY = frozenset({"is_active", "limits"})

_SETTERS = {
    "name": queries.set_name,
    "is_active": queries.set_active,
    "ui_config": queries.set_ui_config,
    "fallback_text": queries.set_fallback_text,
    "limits": queries.set_limits,
    "retention_days": queries.set_retention_days,
    "identity_mode": queries.set_identity_mode,
}


async def add(
    operators: Database,
    name: str,
    slug: str,
    domains: list[str],
    *,
    ui_config: dict[str, Any] | None = None,
    fallback_text: str | None = None,
    change: Change = COMMAND_LINE,
) -> dict[str, Any]:
    allowed = [parse_domain(domain) for domain in domains]
    try:
        async with operators.transaction() as connection:
            tenant = await connection.fetchrow(
                queries.add_tenant,
                UUID(str(uuid_utils.uuid7())),
                slug,
                name,
                ui_config or {},
                fallback_text,
            )
            for domain in allowed:
                await _insert_domain(connection, tenant["id"], domain)
            added = _tenant(tenant, sorted(str(domain) for domain in allowed))
            await record(connection, change, tenant["id"], "tenant.add", slug, after=_told(added))
    except asyncpg.UniqueViolationError as error:
        raise await _taken(operators, error, slug, allowed) from None
    except asyncpg.CheckViolationError as error:
        raise TenantError(_CHECKS.get(error.constraint_name or "", "not allowed")) from None
    return added


async def listed(
    operators: Database, *, after: str | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """All tenants by slug, or a page of them."""
    rows = await operators.all(queries.list_tenants, after, limit)
    return [_tenant(row, row["domains"]) for row in rows]


async def by_slug(operators: Database, slug: str) -> dict[str, Any]:
    row = await operators.one(queries.tenant_by_slug, slug)
    return _found(row, slug)


async def update(
    operators: Database,
    slug: str,
    changes: Mapping[str, Any],
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> dict[str, Any]:
    """Set some of what `TenantChanges` names."""
    async with _changing(operators, slug) as (connection, tenant):
        revisions.require(expected, tenant)
        changed = {name: value for name, value in changes.items() if tenant[name] != value}
        for name, value in changed.items():
            await connection.execute(_SETTERS[name], UUID(tenant["id"]), value)
        if changed:
            before = {name: tenant[name] for name in changed}
            await record(
                connection, change, UUID(tenant["id"]), "tenant.update", slug, before, changed
            )
    return {**tenant, **changed}


async def set_active(
    operators: Database, slug: str, *, active: bool, change: Change = COMMAND_LINE
) -> None:
    async with _changing(operators, slug) as (connection, tenant):
        if tenant["is_active"] == active:
            return
        await connection.execute(queries.set_active, UUID(tenant["id"]), active)
        action = "tenant.enable" if active else "tenant.disable"
        before, after = {"is_active": tenant["is_active"]}, {"is_active": active}
        await record(connection, change, UUID(tenant["id"]), action, slug, before, after)


async def sign_out(operators: Database, slug: str, change: Change = COMMAND_LINE) -> None:
    """End every visitor's session of the tenant."""
    async with _changing(operators, slug) as (connection, tenant):
        await connection.execute(queries.sign_out, UUID(tenant["id"]))
        await record(connection, change, UUID(tenant["id"]), "tenant.sign_out", slug)


async def remove(
    operators: Database, slug: str, change: Change = COMMAND_LINE, expected: Expected = None
) -> None:
    async with _changing(operators, slug) as (connection, tenant):
        revisions.require(expected, tenant)
        await connection.execute(queries.remove_tenant, UUID(tenant["id"]))
        await record(
            connection, change, UUID(tenant["id"]), "tenant.remove", slug, before=_told(tenant)
        )


async def add_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    try:
        async with _changing(operators, slug) as (connection, tenant):
            await _insert_domain(connection, UUID(tenant["id"]), domain)
            after = {"domain": str(domain)}
            await record(connection, change, UUID(tenant["id"]), "domain.add", slug, after=after)
    except asyncpg.UniqueViolationError as error:
        raise await _taken(operators, error, slug, [domain]) from None
    return str(domain)


async def remove_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    async with _changing(operators, slug) as (connection, tenant):
        status = await connection.execute(queries.remove_domain, UUID(tenant["id"]), str(domain))
        if status == "DELETE 0":
            raise DomainNotFound(
                f"{slug} has no domain {domain}; `hlas domain list {slug}` shows all"
            )
        before = {"domain": str(domain)}
        await record(connection, change, UUID(tenant["id"]), "domain.remove", slug, before)
    return str(domain)


async def going_first(operators: Database, slug: str, domains: list[str]) -> list[Row]:
    """Other tenants' entries that take some or all of the pages of these."""
    return await operators.all(queries.domains_going_first, slug, domains)


def parse_domain(text: str) -> AllowedDomain:
    try:
        return AllowedDomain.parse(text)
    except ValueError as error:
        raise TenantError(f"{text!r}: {error}") from None


@asynccontextmanager
async def _changing(
    operators: Database, slug: str
) -> AsyncIterator[tuple[asyncpg.Connection, dict[str, Any]]]:
    """A transaction with the tenant locked, and the tenant as it is under the lock."""
    async with operators.transaction() as connection:
        await connection.execute(queries.lock_tenant, slug)
        row = await connection.fetchrow(queries.tenant_by_slug, slug)
        yield connection, _found(row, slug)


async def _insert_domain(
    connection: asyncpg.Connection, tenant_id: UUID, domain: AllowedDomain
) -> None:
    await connection.execute(
        queries.add_domain,
        tenant_id,
        str(domain),
        domain.scheme,
        domain.host,
        domain.port,
        domain.is_wildcard,
    )


_CHECKS = {
    "ck_tenants__slug": "a slug is 1 to 63 characters of a-z, 0-9 and -, no - at its ends",
    "ck_tenants__name": "a name has 1 to 200 characters",
}


async def _taken(
    operators: Database,
    error: asyncpg.UniqueViolationError,
    slug: str,
    domains: list[AllowedDomain],
) -> TenantError:
    if error.constraint_name == "uq_tenants__slug":
        return SlugTaken(f"{slug} exists already")
    if error.constraint_name != "uq_tenant_domains__domain":
        return DomainTaken(f"{slug}: the domain is on its list already")
    # A tenant's own role sees no entry but its own, so it is not told whose this one is.
    row = await operators.one(queries.holder_of_domain, slug, [str(domain) for domain in domains])
    if row is None:
        return DomainTaken("the domain belongs to another tenant; remove it there first")
    domain, holder = row["domain"], row["slug"]
    told = f"{domain} belongs to {holder}; free it with `hlas domain remove {holder} {domain}`"
    if domain in LOCAL_HOSTS:
        told += f", or name a port: {domain}:5500"
    return DomainTaken(told)


def _found(row: Row | None, slug: str) -> dict[str, Any]:
    if row is None:
        raise TenantNotFound(f"there is no tenant {slug!r}; `hlas tenant list` shows all")
    return _tenant(row, row["domains"])


def _tenant(row: Row, domains: list[str]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "slug": row["slug"],
        "name": row["name"],
        "is_active": row["is_active"],
        "domains": list(domains),
        "ui_config": row["ui_config"],
        "fallback_text": row["fallback_text"],
        "limits": row["limits"],
        "retention_days": row["retention_days"],
        "identity_mode": row["identity_mode"],
        "created_at": row["created_at"],
    }


def _told(tenant: dict[str, Any]) -> dict[str, Any]:
    """The tenant as the audit tells of it; what an event has in columns of its own is left out."""
    return {name: value for name, value in tenant.items() if name not in {"id", "created_at"}}
