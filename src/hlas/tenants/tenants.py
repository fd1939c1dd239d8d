"""Tenants and the domains they allow. Every change is recorded in the audit."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Literal, Self
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
from hlas.tenants.looks import Language, Looks
from hlas.tenants.revisions import Expected
from hlas.visitors.origins import LOCAL_HOSTS, AllowedDomain

queries = Queries.beside(__file__)

SLUG = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


def _check_domain(text: str) -> str:
    try:
        return str(AllowedDomain.parse(text))
    except ValueError:
        raise PydanticCustomError("invalid_domain", "invalid domain") from None


def _check_limits(given: dict[str, str]) -> dict[str, str]:
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
Domain = Annotated[str, Field(max_length=300), AfterValidator(_check_domain)]
Fallback = Annotated[Text, Field(min_length=1, max_length=4000)]
Fallbacks = Annotated[
    dict[Language, Fallback],
    Field(description="by language, `cs` or `en`; `fallback_text` is for the others"),
]
IdentityMode = Literal["off", "optional", "required"]
Handler = Literal["agent", "human"]


@dataclass(frozen=True, slots=True)
class Tenant:
    id: UUID
    slug: str
    name: str
    is_active: bool
    domains: tuple[str, ...]
    ui_config: dict[str, object]
    fallback_text: str | None
    fallback_texts: dict[str, str]
    limits: dict[str, str]
    retention_days: int | None
    identity_mode: IdentityMode
    handler: Handler
    created_at: datetime

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(
            id=UUID(str(row["id"])),
            slug=row["slug"],
            name=row["name"],
            is_active=row["is_active"],
            domains=tuple(row["domains"]),
            ui_config=row["ui_config"],
            fallback_text=row["fallback_text"],
            fallback_texts=row["fallback_texts"],
            limits=row["limits"],
            retention_days=row["retention_days"],
            identity_mode=row["identity_mode"],
            handler=row["handler"],
            created_at=row["created_at"],
        )

    @property
    def revision(self) -> str:
        return revisions.tag(asdict(self))

    def describe(self) -> dict[str, object]:
        """For the audit, whose events have columns for the tenant's id and the time."""
        content = asdict(self)
        return {name: content[name] for name in content if name not in {"id", "created_at"}}


@dataclass(frozen=True, slots=True)
class PrecedingDomain:
    """Another tenant's domain that matches pages of `domain`, and that is resolved before it."""

    domain: str
    other_slug: str
    other_domain: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(row["domain"], row["other_slug"], row["other_domain"])


class NewTenant(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name
    slug: str = Field(pattern=SLUG)
    domains: list[Domain] = Field(default_factory=list, max_length=100)
    ui_config: Looks = Field(default_factory=Looks)
    fallback_text: Fallback | None = None
    fallback_texts: Fallbacks = Field(default_factory=dict)


class TenantChanges(BaseModel):
    """Fields left out keep their values; those with fields of their own are replaced as a whole."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Name = Field("")
    is_active: bool = Field(default=True, description="operators only")
    ui_config: Looks = Field(default_factory=Looks)
    fallback_text: Fallback | None = Field(None, description="null: a default text")
    fallback_texts: Fallbacks = Field(default_factory=dict)
    limits: Annotated[dict[str, str], AfterValidator(_check_limits)] = Field(
        default_factory=dict,
        description=f"operators only: {', '.join(OVERRIDES)}, as 30/min or off",
    )
    retention_days: Annotated[int, Field(ge=1, le=36500)] | None = Field(
        None, description="days after its last message until a conversation is deleted; null: never"
    )
    identity_mode: IdentityMode = Field(
        "off", description="whether visitors may or must prove who they are, signed by the tenant"
    )

    handler: Handler = Field("agent", description="who answers new conversations")

    def list_changes(self) -> dict[str, object]:
        """The fields that were sent, as they are stored."""
        values = self.model_dump(include=self.model_fields_set)
        if "ui_config" in values:
            values["ui_config"] = self.ui_config.store()
        return values


# These affect other tenants' visitors and the cost of the service: a tenant cannot change them.
OPERATORS_ONLY = frozenset({"is_active", "limits"})

_SETTERS = {
    "name": queries.set_name,
    "is_active": queries.set_active,
    "ui_config": queries.set_ui_config,
    "fallback_text": queries.set_fallback_text,
    "fallback_texts": queries.set_fallback_texts,
    "limits": queries.set_limits,
    "retention_days": queries.set_retention_days,
    "identity_mode": queries.set_identity_mode,
    "handler": queries.set_handler,
}


async def add(
    operators: Database,
    name: str,
    slug: str,
    domains: Sequence[str],
    *,
    ui_config: Mapping[str, object] | None = None,
    fallback_text: str | None = None,
    fallback_texts: Mapping[Language, str] | None = None,
    change: Change = COMMAND_LINE,
) -> Tenant:
    allowed = [parse_domain(domain) for domain in domains]
    tenant_id = UUID(str(uuid_utils.uuid7()))
    try:
        async with operators.transaction() as connection:
            await connection.execute(
                queries.add_tenant,
                tenant_id,
                slug,
                name,
                ui_config or {},
                fallback_text,
                fallback_texts or {},
            )
            for domain in allowed:
                await _insert_domain(connection, tenant_id, domain)
            added = await _read(connection, slug)
            await record(connection, change, tenant_id, "tenant.add", slug, after=added.describe())
    except asyncpg.UniqueViolationError as error:
        raise await _explain_conflict(operators, error, slug, allowed) from None
    except asyncpg.CheckViolationError as error:
        raise TenantError(_CHECKS.get(error.constraint_name or "", "not allowed")) from None
    return added


async def list_tenants(
    operators: Database, *, after: str | None = None, limit: int | None = None
) -> list[Tenant]:
    """All tenants by slug, or a page of them."""
    rows = await operators.all(queries.list_tenants, after, limit)
    return [Tenant.from_row(row) for row in rows]


async def find_tenant(operators: Database, slug: str) -> Tenant:
    return _require(await operators.one(queries.tenant_by_slug, slug), slug)


async def update(
    operators: Database,
    slug: str,
    changes: Mapping[str, object],
    expected: Expected = None,
    change: Change = COMMAND_LINE,
) -> Tenant:
    """Set some of the fields of `TenantChanges`."""
    async with _lock(operators, slug) as (connection, tenant):
        revisions.require(expected, tenant.revision)
        stored = asdict(tenant)
        changed = {name: value for name, value in changes.items() if stored[name] != value}
        if not changed:
            return tenant
        for name, value in changed.items():
            await connection.execute(_SETTERS[name], tenant.id, value)
        before = {name: stored[name] for name in changed}
        await record(connection, change, tenant.id, "tenant.update", slug, before, changed)
        return await _read(connection, slug)


async def set_active(
    operators: Database, slug: str, *, active: bool, change: Change = COMMAND_LINE
) -> None:
    async with _lock(operators, slug) as (connection, tenant):
        if tenant.is_active == active:
            return
        await connection.execute(queries.set_active, tenant.id, active)
        action = "tenant.enable" if active else "tenant.disable"
        before, after = {"is_active": tenant.is_active}, {"is_active": active}
        await record(connection, change, tenant.id, action, slug, before, after)


async def sign_out(operators: Database, slug: str, change: Change = COMMAND_LINE) -> None:
    """End every visitor's session of the tenant."""
    async with _lock(operators, slug) as (connection, tenant):
        await connection.execute(queries.sign_out, tenant.id)
        await record(connection, change, tenant.id, "tenant.sign_out", slug)


async def remove(
    operators: Database, slug: str, change: Change = COMMAND_LINE, expected: Expected = None
) -> None:
    async with _lock(operators, slug) as (connection, tenant):
        revisions.require(expected, tenant.revision)
        await connection.execute(queries.remove_tenant, tenant.id)
        before = tenant.describe()
        await record(connection, change, tenant.id, "tenant.remove", slug, before)


async def add_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    try:
        async with _lock(operators, slug) as (connection, tenant):
            await _insert_domain(connection, tenant.id, domain)
            after = {"domain": str(domain)}
            await record(connection, change, tenant.id, "domain.add", slug, after=after)
    except asyncpg.UniqueViolationError as error:
        raise await _explain_conflict(operators, error, slug, [domain]) from None
    return str(domain)


async def remove_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    async with _lock(operators, slug) as (connection, tenant):
        status = await connection.execute(queries.remove_domain, tenant.id, str(domain))
        if status == "DELETE 0":
            raise DomainNotFound(
                f"{slug} has no domain {domain}; `hlas domain list {slug}` shows all"
            )
        before = {"domain": str(domain)}
        await record(connection, change, tenant.id, "domain.remove", slug, before)
    return str(domain)


async def find_preceding_domains(
    operators: Database, slug: str, domains: Sequence[str]
) -> list[PrecedingDomain]:
    """Other tenants' domains that take precedence over these on some or all pages."""
    rows = await operators.all(queries.preceding_domains, slug, list(domains))
    return [PrecedingDomain.from_row(row) for row in rows]


def parse_domain(text: str) -> AllowedDomain:
    try:
        return AllowedDomain.parse(text)
    except ValueError as error:
        raise TenantError(f"{text!r}: {error}") from None


@asynccontextmanager
async def _lock(operators: Database, slug: str) -> AsyncIterator[tuple[asyncpg.Connection, Tenant]]:
    """A transaction in which the tenant is locked, and the tenant as read under the lock."""
    async with operators.transaction() as connection:
        await connection.execute(queries.lock_tenant, slug)
        yield connection, await _read(connection, slug)


async def _read(connection: asyncpg.Connection, slug: str) -> Tenant:
    return _require(await connection.fetchrow(queries.tenant_by_slug, slug), slug)


def _require(row: Row | None, slug: str) -> Tenant:
    if row is None:
        raise TenantNotFound(f"there is no tenant {slug!r}; `hlas tenant list` shows all")
    return Tenant.from_row(row)


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


async def _explain_conflict(
    operators: Database,
    error: asyncpg.UniqueViolationError,
    slug: str,
    domains: list[AllowedDomain],
) -> TenantError:
    if error.constraint_name == "uq_tenants__slug":
        return SlugTaken(f"{slug} exists already")
    if error.constraint_name != "uq_tenant_domains__domain":
        return DomainTaken(f"{slug}: the domain is on its list already")
    # A tenant's role sees only its own domains, so the message does not name the other tenant.
    row = await operators.one(queries.holder_of_domain, slug, [str(domain) for domain in domains])
    if row is None:
        return DomainTaken("the domain belongs to another tenant; remove it there first")
    domain, holder = row["domain"], row["slug"]
    message = f"{domain} belongs to {holder}; free it with `hlas domain remove {holder} {domain}`"
    if domain in LOCAL_HOSTS:
        message += f", or name a port: {domain}:5500"
    return DomainTaken(message)
