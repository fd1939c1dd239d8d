"""The database roles: made by whoever migrates, or by an administrator from the SQL we print."""

from typing import Any

import asyncpg

from hlas.settings import ConfigurationError

APPLICATION = "hlas_app"
OPERATOR = "hlas_operator"
TENANT_ADMIN = "hlas_tenant_admin"
WRITER = "hlas_writer"
RESOLVER = "hlas_resolver"

PURPOSE = {
    APPLICATION: "serves visitors, one tenant at a time",
    OPERATOR: "administrators' commands, all tenants",
    TENANT_ADMIN: "administrators of one tenant, that tenant alone",
    WRITER: "owns the group commit function and nothing else",
    RESOLVER: "owns the function that finds the tenant of an origin and nothing else",
}


def administrator_sql(user: str) -> str:
    """What an administrator runs when the migrating user may not create roles."""
    quoted = '"' + user.replace('"', '""') + '"'
    lines = [f"create role {role} nologin; -- {why}" for role, why in PURPOSE.items()]
    lines += [f"grant {role} to {quoted};" for role in PURPOSE]
    return "\n".join(lines)


async def ensure(connection: asyncpg.Connection) -> None:
    """Make the roles and let this user switch to them; the server may be another each time."""
    for role in PURPOSE:
        try:
            await _ensure_one(connection, role)
        except asyncpg.InsufficientPrivilegeError:
            user = await connection.fetchval("select session_user")
            raise ConfigurationError(
                f"DATABASE_URL: its user may not create the role {role}. "
                "Let an administrator run this once, then start again:\n" + administrator_sql(user)
            ) from None


async def _ensure_one(connection: asyncpg.Connection, role: str) -> None:
    found = await connection.fetchrow(
        "select rolsuper or rolbypassrls as unsafe from pg_roles where rolname = $1", role
    )
    if found is None:
        try:
            await connection.execute(f"create role {role} nologin")
        except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
            pass  # another database of this server was migrated at the same moment
    elif found["unsafe"]:
        raise ConfigurationError(f"the database role {role} must not be superuser or BYPASSRLS")
    if not await _can_switch(connection, role):
        await connection.execute(f"grant {role} to current_user{_without_inheritance(connection)}")


def _without_inheritance(connection: asyncpg.Connection) -> str:
    # PostgreSQL 16 and newer can let a user switch to a role without having its rights all along.
    return " with inherit false, set true" if connection.get_server_version().major >= 16 else ""


async def _can_switch(connection: asyncpg.Connection, role: str) -> Any:
    kind = "SET" if connection.get_server_version().major >= 16 else "MEMBER"
    return await connection.fetchval("select pg_has_role(current_user, $1, $2)", role, kind)
