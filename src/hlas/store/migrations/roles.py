"""The database roles, created by `migrate`, or by an administrator from the SQL it prints."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import asyncpg

from hlas.settings import ConfigurationError
from hlas.store.db import (
    DatabaseRole,
    Queries,
    connect,
    find_roles,
    find_unsafe_right,
    log_in,
)
from hlas.store.logins import (
    APPLICATION,
    LOGIN_ROLES,
    OPERATOR,
    OWNING_ROLES,
    RESOLVER,
    TENANT_ADMIN,
    WRITER,
    Logins,
    scram_verifier,
)

queries = Queries.beside(__file__)

PURPOSE: Final = {
    APPLICATION: "serves visitors, one tenant at a time",
    OPERATOR: "administrators' commands, all tenants",
    TENANT_ADMIN: "administrators of one tenant, that tenant alone",
    WRITER: "owns the functions that write messages, runs and responses and nothing else",
    RESOLVER: "owns the functions that find the tenant of an origin and nothing else",
}

# The only SECURITY DEFINER functions, and their owners.
DEFINERS: Final = {
    "resolve_origin": RESOLVER,
    "claim_domain": RESOLVER,
    "write_messages": WRITER,
    "start_run": WRITER,
    "store_response": WRITER,
}

_COMMON = {
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "15s",
    # For times in JSON that the database generates.
    "TimeZone": "UTC",
}
# Set on the roles, because connection poolers refuse them in the start-up packet.
SETTINGS: Final = {
    APPLICATION: {
        **_COMMON,
        # An acknowledged message is on disk.
        "synchronous_commit": "on",
        "lock_timeout": "1s",
        # Pools have shorter timeouts; this one still applies after a worker was killed.
        "statement_timeout": "5s",
        # A dead connection must not hold its row locks for hours.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    },
    OPERATOR: _COMMON,
    TENANT_ADMIN: _COMMON,
}

REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InsufficientPrivilegeError)

# An arbitrary constant, the same for every process that migrates a database.
ROLES_LOCK = 0x484C4152


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The user that migrates, and the state of the database."""

    user: str
    database: str
    owns_database: bool
    is_open: bool
    is_migrated: bool


async def are_ready(logins: Logins) -> bool:
    """Whether every role can log in with its password, and has its settings."""
    connection = await connect(logins.owner_url)
    try:
        roles = await find_roles(connection, [logins.role(name) for name in LOGIN_ROLES])
    finally:
        await connection.close()
    found = {role.name: role for role in roles}
    plans = (_plan_login(logins, name, found.get(logins.role(name))) for name in LOGIN_ROLES)
    return not any(await asyncio.gather(*plans))


async def ensure(logins: Logins) -> None:
    """Create the roles or correct them. The server may be a different one each time."""
    connection = await connect(logins.owner_url)
    try:
        # Several hosts may start at once.
        await connection.execute(f"select pg_advisory_lock({ROLES_LOCK})")
        statements = await _plan(connection, logins)
        await _change(connection, statements)
        await _revoke_memberships(connection, logins)
    finally:
        await connection.close()
    for name in LOGIN_ROLES:
        if refusal := await _refusal(logins, name):
            raise ConfigurationError(
                f"DATABASE_URL: the role {logins.role(name)} cannot log in: {refusal}; let "
                "pg_hba.conf admit it with its password (scram-sha-256)"
            )


async def find_fault(connection: asyncpg.Connection, logins: Logins) -> tuple[str, str] | None:
    """A problem with the roles of this database and its fix, or None."""
    serving = [logins.role(name) for name in LOGIN_ROLES]
    roles = await find_roles(connection, serving)
    if missing := set(serving) - {role.name for role in roles}:
        return f"missing: {', '.join(sorted(missing))}", "run `hlas migrate`"
    for role in roles:
        if reason := find_unsafe_right(role):
            return reason, _remedy(role)
    for name in LOGIN_ROLES:
        if refusal := await _refusal(logins, name):
            return f"{logins.role(name)} cannot log in: {refusal}", "run `hlas migrate`"
    for row in await connection.fetch(queries.used_in, serving):
        if row["is_anothers"]:
            return (
                f"the roles {logins.prefix}_* are used in {row['name']}, another owner's database",
                "give each installation its own DATABASE_ROLE_PREFIX",
            )
    return await _find_stray_function(connection, logins)


def _remedy(role: DatabaseRole) -> str:
    if role.is_privileged:
        attributes = "nosuperuser nobypassrls nocreaterole nocreatedb noreplication"
        return f"alter role {role.name} {attributes};"
    if role.owns_tables:
        return f"reassign owned by {role.name} to the user that migrates;"
    return f"revoke the roles that {role.name} was granted;"


async def _find_stray_function(
    connection: asyncpg.Connection, logins: Logins
) -> tuple[str, str] | None:
    """Find a wrong owner: after a restore as another user, that user owns the functions."""
    rows = await connection.fetch(queries.definers)
    if missing := set(DEFINERS) - {row["name"] for row in rows}:
        return f"missing functions: {', '.join(sorted(missing))}", "run `hlas migrate`"
    for row in rows:
        if row["name"] not in DEFINERS:
            found = f"{row['signature']}, a function that runs as {row['owner']}, is not of Hlas"
            return found, f"drop function {row['signature']};"
        wanted = logins.role(DEFINERS[row["name"]])
        if row["owner"] != wanted:
            return (
                f"the function {row['name']} belongs to {row['owner']} instead of {wanted}",
                f"alter function {row['signature']} owner to {wanted}; as a superuser",
            )
    return None


async def admit(connection: asyncpg.Connection, logins: Logins) -> None:
    """Let the roles, and nobody else, connect to a database that is ours."""
    here = Surroundings(**await connection.fetchrow(queries.surroundings))
    await _change(connection, _admission(here, logins))


async def _plan(connection: asyncpg.Connection, logins: Logins) -> list[str]:
    """The statements that are missing, for us or for an administrator."""
    here = Surroundings(**await connection.fetchrow(queries.surroundings))
    names = [logins.role(name) for name in PURPOSE]
    found = {role.name: role for role in await find_roles(connection, names)}
    for existing in found.values():
        if existing.is_privileged:
            raise ConfigurationError(
                f"DATABASE_ROLE_PREFIX: the role {existing.name} must be an ordinary one: no "
                "superuser, no BYPASSRLS, CREATEROLE, CREATEDB or REPLICATION"
            )
    statements: list[str] = []
    for name in LOGIN_ROLES:
        statements += await _plan_login(logins, name, found.get(logins.role(name)))
    await _require_own(connection, logins, here, renewed=bool(found and statements))
    for name in OWNING_ROLES:
        role = logins.role(name)
        if role not in found:
            statements.append(f"create role {role} nologin; -- {PURPOSE[name]}")
        if not await _can_switch(connection, role):
            statements.append(f"grant {role} to {here.user}{_without_inheritance(connection)};")
    return statements + _admission(here, logins)


async def _plan_login(logins: Logins, name: str, found: DatabaseRole | None) -> list[str]:
    role = logins.role(name)
    statements = []
    if found is None or not found.can_log_in or await _refusal(logins, name):
        # A verifier, not the password: a server may log statements.
        verifier = scram_verifier(logins.login(name).password)
        verb, why = ("alter", "") if found else ("create", f" -- {PURPOSE[name]}")
        statements.append(f"{verb} role {role} login password '{verifier}';{why}")
    wanted = SETTINGS[name]
    if found and found.settings == {f"{key}={wanted[key]}" for key in wanted}:
        return statements
    if found and found.settings:
        statements.append(f"alter role {role} reset all;")
    return statements + [f"alter role {role} set {key} = '{wanted[key]}';" for key in wanted]


def _admission(here: Surroundings, logins: Logins) -> list[str]:
    roles = ", ".join(logins.role(name) for name in LOGIN_ROLES)
    grant = f"grant connect on database {here.database} to {roles};"
    if here.owns_database:
        return [f"revoke connect on database {here.database} from public;", grant]
    return [] if here.is_open else [grant]


async def _require_own(
    connection: asyncpg.Connection, logins: Logins, here: Surroundings, *, renewed: bool
) -> None:
    """A prefix belongs to one database: shared roles would let one installation into another."""
    roles = [logins.role(name) for name in PURPOSE]
    used = await connection.fetch(queries.used_in, roles)
    is_ours = any(row["is_this"] for row in used)
    others = [row for row in used if not row["is_this"]]
    if is_ours:
        # A killed restore leaves behind a database of the same owner.
        others = [row for row in others if renewed and row["is_anothers"]]
    if others:
        raise ConfigurationError(
            f"DATABASE_ROLE_PREFIX: the roles {logins.prefix}_* belong to the database "
            f"{others[0]['name']} of this server; set another prefix for this installation"
        )
    if here.is_migrated and not is_ours:
        raise ConfigurationError(
            f"DATABASE_ROLE_PREFIX: this database was set up with another prefix than "
            f"{logins.prefix}; set it back"
        )


async def _change(connection: asyncpg.Connection, statements: list[str]) -> None:
    """Run all statements, or none and raise an error with the SQL for an administrator."""
    try:
        async with connection.transaction():
            for statement in statements:
                await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError as error:
        raise ConfigurationError(
            f"DATABASE_URL: its user may not set up the database roles ({error.args[0]}). Let an "
            "administrator run this once, then start again:\n" + "\n".join(statements)
        ) from None


async def _revoke_memberships(connection: asyncpg.Connection, logins: Logins) -> None:
    """Earlier versions let the owner switch to the serving roles; nothing needs that now."""
    for name in LOGIN_ROLES:
        with suppress(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"revoke {logins.role(name)} from current_user")


async def _refusal(logins: Logins, name: str) -> str:
    """Why the role cannot log in; empty when it can."""
    try:
        connection = await log_in(logins, name)
    except REFUSED as error:
        return str(error).partition("\n")[0] or type(error).__name__
    await connection.close()
    return ""


def _without_inheritance(connection: asyncpg.Connection) -> str:
    # PostgreSQL 16 and newer can let a user switch to a role without having its rights all along.
    return " with inherit false, set true" if connection.get_server_version().major >= 16 else ""


async def _can_switch(connection: asyncpg.Connection, role: str) -> bool:
    kind = "SET" if connection.get_server_version().major >= 16 else "MEMBER"
    return bool(await connection.fetchval(queries.can_switch, role, kind))
