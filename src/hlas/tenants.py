"""Tenants and the domains they allow; every change leaves one row in events."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import uuid_utils

from hlas.db import Database, Queries, Row
from hlas.origins import AllowedDomain

queries = Queries.beside(__file__)


class TenantError(Exception):
    """A change that cannot be made; the message is one line for the person who asked for it."""


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes something, and in which request."""

    actor: str
    request_id: str | None = None


COMMAND_LINE = Change(actor="command line")


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
            after = {"name": name, "slug": slug, "domains": [str(domain) for domain in allowed]}
            await record(connection, change, tenant["id"], "tenant.add", slug, after=after)
    except asyncpg.UniqueViolationError as error:
        raise _taken(error, slug) from None
    except asyncpg.CheckViolationError as error:
        raise TenantError(_CHECKS.get(error.constraint_name or "", "not allowed")) from None
    return _tenant(tenant, [str(domain) for domain in allowed])


async def listed(operators: Database) -> list[dict[str, Any]]:
    return [_tenant(row, row["domains"]) for row in await operators.all(queries.list_tenants)]


async def by_slug(operators: Database, slug: str) -> dict[str, Any]:
    row = await operators.one(queries.tenant_by_slug, slug)
    if row is None:
        raise TenantError(f"there is no tenant {slug!r}; `hlas tenant list` shows all")
    return _tenant(row, row["domains"])


async def set_active(
    operators: Database, slug: str, *, active: bool, change: Change = COMMAND_LINE
) -> None:
    tenant = await by_slug(operators, slug)
    async with operators.transaction() as connection:
        await connection.execute(queries.set_active, UUID(tenant["id"]), active)
        action = "tenant.enable" if active else "tenant.disable"
        before, after = {"is_active": tenant["is_active"]}, {"is_active": active}
        await record(connection, change, UUID(tenant["id"]), action, slug, before, after)


async def sign_out(operators: Database, slug: str, change: Change = COMMAND_LINE) -> None:
    """End every visitor's session of the tenant."""
    tenant = await by_slug(operators, slug)
    async with operators.transaction() as connection:
        await connection.execute(queries.sign_out, UUID(tenant["id"]))
        await record(connection, change, UUID(tenant["id"]), "tenant.sign_out", slug)


async def remove(operators: Database, slug: str, change: Change = COMMAND_LINE) -> None:
    tenant = await by_slug(operators, slug)
    async with operators.transaction() as connection:
        await connection.execute(queries.remove_tenant, UUID(tenant["id"]))
        before = {key: tenant[key] for key in ("name", "slug", "domains")}
        await record(connection, change, UUID(tenant["id"]), "tenant.remove", slug, before)


async def add_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    tenant = await by_slug(operators, slug)
    try:
        async with operators.transaction() as connection:
            await _insert_domain(connection, UUID(tenant["id"]), domain)
            after = {"domain": str(domain)}
            await record(connection, change, UUID(tenant["id"]), "domain.add", slug, after=after)
    except asyncpg.UniqueViolationError as error:
        raise _taken(error, str(domain)) from None
    return str(domain)


async def remove_domain(
    operators: Database, slug: str, text: str, change: Change = COMMAND_LINE
) -> str:
    domain = parse_domain(text)
    tenant = await by_slug(operators, slug)
    async with operators.transaction() as connection:
        status = await connection.execute(queries.remove_domain, UUID(tenant["id"]), str(domain))
        if status == "DELETE 0":
            raise TenantError(f"{slug} has no domain {domain}; `hlas domain list {slug}` shows all")
        before = {"domain": str(domain)}
        await record(connection, change, UUID(tenant["id"]), "domain.remove", slug, before)
    return str(domain)


async def record(
    connection: asyncpg.Connection,
    change: Change,
    tenant_id: UUID,
    action: str,
    target: str,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """One row of audit, in the transaction of the change it tells of."""
    await connection.execute(
        queries.record_event,
        tenant_id,
        UUID(str(uuid_utils.uuid7())),
        change.actor,
        action,
        target,
        before,
        after,
        change.request_id,
    )


def parse_domain(text: str) -> AllowedDomain:
    try:
        return AllowedDomain.parse(text)
    except ValueError as error:
        raise TenantError(f"{text!r}: {error}") from None


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


def _taken(error: asyncpg.UniqueViolationError, what: str) -> TenantError:
    if error.constraint_name == "uq_tenant_domains__domain":
        return TenantError("the domain belongs to another tenant; remove it there first")
    return TenantError(f"{what} exists already")


def _tenant(row: Row, domains: list[str]) -> dict[str, Any]:
    return {
        "id": str(row["id"]),
        "slug": row["slug"],
        "name": row["name"],
        "is_active": row["is_active"],
        "domains": list(domains),
        "created_at": row["created_at"],
    }
