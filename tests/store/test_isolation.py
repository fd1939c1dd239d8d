"""Tenants are isolated twice: by every route, and by the database."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from uuid_utils import uuid7

import hlas
from factories import Site, make_site, url_of
from hlas.app import ROUTERS
from hlas.store import embedded
from hlas.store.db import Database, Queries
from hlas.store.logins import LOGIN_ROLES
from hlas.store.migrations.roles import DEFINERS, PURPOSE

SOURCE = Path(hlas.__file__).parent

# Reachable without a token, and without tenants' data except what their pages show.
OPEN = (
    *("/widget/session", "/health", "/ready", "/metrics", "/docs", "/openapi.json"),
    *("/", "/widget.js", "/demo"),
)
OPEN_TEMPLATES = {"/widget/{version}/widget.js", "/docs/{name}"}
BY_TOKEN = {
    "/widget/session/refresh",
    "/widget/whoami",
    "/widget/messages",
    "/widget/messages/assistant",
    "/widget/agent/reply",
    "/widget/conversations/{conversation_id}/messages",
    "/widget/conversations/{conversation_id}/stream",
    "/widget/conversations/{conversation_id}/stop",
    "/widget/conversations/{conversation_id}/person",
    "/widget/conversations/{conversation_id}/contact",
    "/widget/messages/{message_id}/rating",
}


@pytest_asyncio.fixture
async def catalogue(
    postgres_server: embedded.Server, database_url: str
) -> AsyncIterator[asyncpg.Connection]:
    """The migrated database, seen by a superuser."""
    name = database_url.partition("?")[0].rpartition("/")[2]
    connection = await asyncpg.connect(url_of(postgres_server.superuser_url, name))
    yield connection
    await connection.close()


def test_every_route_is_known() -> None:
    """Edge case 36: every route is listed here with the source of its tenant."""
    paths = {
        route.path for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)
    }
    rest = {path for path in paths if not path.startswith(("/admin", "/console", "/demo"))}
    assert rest - set(OPEN) - OPEN_TEMPLATES == BY_TOKEN


async def dump_rows(operators: Database) -> list[Any]:
    """Everything that visitors can write."""
    found = []
    for table in ("conversations", "messages", "idempotency_keys", "events", "incidents"):
        rows = await operators.all(f"select * from {table} order by tenant_id")
        found.append([dict(row) for row in rows])
    return found


async def test_foreign_conversations(
    site: Site, operators: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edge case 36: a foreign conversation is refused like an unknown one, and unchanged."""
    other = await make_site(site.live, operators)
    await other.send("a secret of the other tenant")
    sibling = Site(site.live, site.slug, site.tenant_id, site.origin)
    await sibling.open()
    await sibling.send("a secret of the same tenant")
    before = await dump_rows(operators)
    database = site.live.app.state.services.database

    async def refuse(*_: Any) -> Any:
        raise AssertionError("nothing may be read")

    monkeypatch.setattr(database, "_run", refuse)
    answers = []
    for foreign in (
        other.conversation_id,
        other.conversation_id.upper(),
        sibling.conversation_id,
        str(uuid7()),
        "00000000-0000-0000-0000-000000000000",
        "x",
        "' or 1=1",
        site.conversation_id + "%20",
        site.conversation_id.replace("-", ""),
    ):
        answer = await site.live.client.get(
            f"/widget/conversations/{foreign}/messages", headers=site.headers()
        )
        assert (answer.status_code, answer.json()["detail"]) == (403, "conversation_mismatch")
        answers.append({**answer.json(), "request_id": ""})
    assert all(answer == answers[0] for answer in answers)
    monkeypatch.undo()
    assert await dump_rows(operators) == before


async def test_ids_in_bodies_and_queries(site: Site, operators: Database) -> None:
    """Edge case 36: tenant and conversation come from the token, whatever a request contains."""
    other = await make_site(site.live, operators)
    foreign = {"tenant_id": other.tenant_id, "conversation_id": other.conversation_id}
    client, headers = site.live.client, site.headers()
    for field, value in foreign.items():
        answer = await site.send("a foreign field", **{field: value})
        assert answer.status_code == 422
    assert (
        await client.post(
            "/widget/messages", headers=headers, params=foreign, json={"text": "mine"}
        )
    ).status_code == 200
    answer = await client.get("/widget/whoami", headers=headers, params=foreign)
    assert answer.json()["tenant_id"] == site.tenant_id
    await client.post("/widget/messages/assistant", headers=headers, params=foreign)
    rows = await operators.all(
        "select distinct tenant_id::text, conversation_id::text from messages"
    )
    assert [tuple(row) for row in rows] == [(site.tenant_id, site.conversation_id)]
    assert (await other.history())["messages"] == []


async def test_row_level_security(catalogue: asyncpg.Connection) -> None:
    """Edge case 37: every table except Alembic's has a tenant, isolated for reads and writes."""
    tables = await catalogue.fetch(
        """
        select c.relname, c.relrowsecurity, c.relforcerowsecurity, exists (
                   select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant_id'
               ) as has_tenant
        from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
          and c.relname <> 'alembic_version'
        """
    )
    assert len(tables) >= 7
    for table in tables:
        name = table["relname"]
        assert table["relrowsecurity"], name
        assert table["relforcerowsecurity"], name
        assert table["has_tenant"] or name == "tenants"
        column = "id" if name == "tenants" else "tenant_id"
        policies = await catalogue.fetch(
            "select * from pg_policies where schemaname = 'public' and tablename = $1", name
        )
        for_all = [policy for policy in policies if policy["roles"] == ["public"]]
        assert len(for_all) == 1, name
        assert for_all[0]["cmd"] == "ALL"
        for clause in (for_all[0]["qual"], for_all[0]["with_check"]):
            assert re.match(rf"\({column} = \( SELECT .*current_setting\('app.tenant_id'", clause)
        others = {role for policy in policies for role in policy["roles"]} - {"public"}
        assert others <= {"hlas_operator", "hlas_writer", "hlas_resolver"}, name


async def test_keys_hold_the_tenant(catalogue: asyncpg.Connection) -> None:
    """Edge case 37: every primary, unique and foreign key of a tenant's table starts with it."""
    keys = await catalogue.fetch(
        """
        select c.relname, n.conname, n.contype::text as contype, f.relname as target,
               (select array_agg(a.attname order by k.position)
                from unnest(n.conkey) with ordinality as k (number, position)
                join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number) as columns,
               (select array_agg(a.attname order by k.position)
                from unnest(n.confkey) with ordinality as k (number, position)
                join pg_attribute a on a.attrelid = f.oid and a.attnum = k.number) as target_columns
        from pg_constraint n
        join pg_class c on c.oid = n.conrelid
        left join pg_class f on f.oid = n.confrelid
        where n.connamespace = 'public'::regnamespace and n.contype in ('p', 'u', 'f')
          and c.relname not in ('alembic_version', 'tenants')
        """
    )
    assert len(keys) >= 10
    for key in keys:
        assert key["columns"][0] == "tenant_id", key["conname"]
        if key["contype"] == "f":
            wanted = "id" if key["target"] == "tenants" else "tenant_id"
            assert key["target_columns"][0] == wanted, key["conname"]
    loose = await catalogue.fetch(
        """
        select i.indexrelid::regclass::text as name
        from pg_index i
        join pg_class c on c.oid = i.indrelid
        join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
        where c.relnamespace = 'public'::regnamespace and i.indisunique
          and c.relname not in ('alembic_version', 'tenants') and a.attname <> 'tenant_id'
        """
    )
    assert loose == []


async def test_names(catalogue: asyncpg.Connection) -> None:
    """Constraints and indexes are named as in ADR-0002."""
    rows = await catalogue.fetch(
        """
        select c.relname, n.conname as name, n.contype::text as kind
        from pg_constraint n join pg_class c on c.oid = n.conrelid
        where n.connamespace = 'public'::regnamespace and n.contype in ('p', 'u', 'f', 'c')
          and c.relname <> 'alembic_version'
        union all
        select c.relname, x.relname, 'i'
        from pg_index i join pg_class c on c.oid = i.indrelid
        join pg_class x on x.oid = i.indexrelid
        where c.relnamespace = 'public'::regnamespace and c.relname <> 'alembic_version'
          and not exists (select from pg_constraint n where n.conindid = i.indexrelid)
        """
    )
    prefixes = {"p": "pk", "u": "uq", "f": "fk", "c": "ck", "i": "ix"}
    for row in rows:
        head = f"{prefixes[row['kind']]}_{row['relname']}"
        tail = "" if row["kind"] == "p" else r"__\w+"
        assert re.fullmatch(head + tail, row["name"]), row["name"]
        assert len(row["name"]) <= 63


async def test_types(catalogue: asyncpg.Connection) -> None:
    """Times have a time zone, and JSON is jsonb except for the stored response."""
    rows = await catalogue.fetch(
        """
        select table_name, column_name, data_type from information_schema.columns
        where table_schema = 'public'
          and data_type in ('timestamp without time zone', 'json', 'character varying')
          and table_name <> 'alembic_version'
        """
    )
    assert [(row["table_name"], row["column_name"]) for row in rows] == [
        ("idempotency_keys", "response")
    ]


async def test_constraints_hold_for_every_row(catalogue: asyncpg.Connection) -> None:
    """No constraint is NOT VALID: rows that violate it could be backed up, but not restored."""
    rows = await catalogue.fetch("select conname from pg_constraint where not convalidated")
    assert [row["conname"] for row in rows] == []


async def test_roles(catalogue: asyncpg.Connection) -> None:
    """Edge case 37: no role can own a table, bypass isolation or switch to another role."""
    rows = await catalogue.fetch(
        """
        select rolname, rolcanlogin, rolsuper or rolbypassrls or rolcreaterole or rolcreatedb
                   or rolreplication as privileged,
               exists (select from pg_class c where c.relowner = r.oid) as owner,
               exists (select from pg_auth_members m where m.member = r.oid) as member
        from pg_roles r where rolname = any ($1)
        """,
        [f"hlas_{name}" for name in PURPOSE],
    )
    assert {row["rolname"]: row["rolcanlogin"] for row in rows} == {
        f"hlas_{name}": name in LOGIN_ROLES for name in PURPOSE
    }
    for row in rows:
        assert not any((row["privileged"], row["owner"], row["member"])), row


async def test_security_definers(catalogue: asyncpg.Connection) -> None:
    """Edge case 37: SECURITY DEFINER functions are a short list, each with a fixed path."""
    rows = await catalogue.fetch(
        """
        select p.proname, r.rolname, p.proconfig,
               has_function_privilege('public', p.oid, 'execute') as everybody
        from pg_proc p join pg_roles r on r.oid = p.proowner
        where p.pronamespace = 'public'::regnamespace and p.prosecdef
        """
    )
    owners = {row["proname"]: row["rolname"] for row in rows}
    assert owners == {name: f"hlas_{owner}" for name, owner in DEFINERS.items()}
    assert sorted(owners) == [
        *("claim_domain", "resolve_origin", "start_run", "store_response", "write_messages"),
    ]
    for row in rows:
        assert "search_path=pg_catalog, public, pg_temp" in row["proconfig"]
        assert not row["everybody"]
    for role in ("hlas_writer", "hlas_resolver"):
        rights = await catalogue.fetch(
            "select table_name, privilege_type from information_schema.role_table_grants "
            "where grantee = $1 and privilege_type in ('DELETE', 'TRUNCATE', 'TRIGGER')",
            role,
        )
        assert rights == []


FOREIGN_INSERT = (
    "insert into conversations (tenant_id, id, origin) "
    "values ($1::text::uuid, gen_random_uuid(), 'https://x.example')"
)


async def test_application_role(site: Site, operators: Database, database: Database) -> None:
    """Edge case 37: without a tenant no row is visible; with one, only its rows; no writes."""
    other = await make_site(site.live, operators)
    for one in (site, other):
        assert (await one.send("a message", key="the-same-key")).status_code == 200
    tables = ("tenants", "tenant_domains", "conversations", "messages", "idempotency_keys")
    for table in tables:
        column = "id" if table == "tenants" else "tenant_id"
        assert await database.all(f"select 1 from {table}") == [], table
        async with database.transaction() as connection:
            await connection.execute("select set_config('app.tenant_id', $1, true)", site.tenant_id)
            seen = await connection.fetch(f"select distinct {column}::text as id from {table}")
            assert [row["id"] for row in seen] == [site.tenant_id], table
        assert await database.all(f"select 1 from {table}") == [], "the setting stayed behind"
    async with database.transaction() as connection:
        await connection.execute("select set_config('app.tenant_id', $1, true)", site.tenant_id)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(FOREIGN_INSERT, other.tenant_id)
    for statement in (
        "delete from messages",
        "update messages set content = ''",
        "insert into messages select * from messages",
        "insert into idempotency_keys select * from idempotency_keys",
        "update tenants set is_active = true",
        "delete from tenants",
        "truncate messages",
        "drop table messages",
        "alter table messages disable row level security",
        "drop policy tenant_isolation on messages",
        "update conversations set last_seq = 0",
        "create table public.mine ()",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await database.execute(statement)
    row = await database.one("select current_user::text as name")
    assert row is not None
    assert row["name"] == "hlas_app"


async def test_foreign_keys_cannot_cross(
    site: Site, operators: Database, catalogue: asyncpg.Connection
) -> None:
    """Edge case 37: not even a superuser can add a message to another tenant's conversation."""
    other = await make_site(site.live, operators)
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await catalogue.execute(
            "insert into messages (tenant_id, id, conversation_id, seq, role, content) "
            "values ($1::text::uuid, gen_random_uuid(), $2::text::uuid, 1, 'user', 'x')",
            site.tenant_id,
            other.conversation_id,
        )


_NAMED = re.compile(r"^-- name: ", re.MULTILINE)
# Each contains one function, which a revision loads.
FUNCTIONS = {
    "write_messages.sql",
    "start_run.sql",
    "store_response.sql",
    "reserve_spend.sql",
    "settle_spend.sql",
}
# What a revision loaded before the function changed.
EARLIER = {"0002_write_messages.sql"}


def sql_files() -> list[Path]:
    """Every file of queries."""
    files = sorted(path for path in SOURCE.rglob("*.sql") if path.name not in FUNCTIONS | EARLIER)
    assert [path for path in files if not _NAMED.search(path.read_text("utf-8"))] == []
    return files


async def test_every_query_prepares(catalogue: asyncpg.Connection) -> None:
    """Every query of every .sql file is valid on the migrated schema."""
    count = 0
    for path in sql_files():
        text = path.read_text("utf-8")
        assert len(Queries(path).by_name) == len(_NAMED.findall(text)), "a name is used twice"
        assert _NAMED.split(text)[0].strip() == "", "a statement without a name"
        for name, query in Queries(path).by_name.items():
            try:
                await catalogue.prepare(query)
            except asyncpg.PostgresError as error:
                pytest.fail(f"{path.name}: {name}: {error}")
            count += 1
    assert count > 20


@pytest.mark.parametrize("file", sorted(FUNCTIONS))
async def test_function_is_that_of_its_file(catalogue: asyncpg.Connection, file: str) -> None:
    """The function in the migrated database is that of its .sql file, including comments."""
    [path] = SOURCE.rglob(file)
    name = path.stem
    definition = "select pg_get_functiondef(oid) from pg_proc where proname = $1"
    [migrated] = [row[0] for row in await catalogue.fetch(definition, name)]
    text = path.read_text("utf-8")
    assert text.count(f"create function {name}(") == 1
    async with catalogue.transaction():
        await catalogue.execute(text.replace("create function", "create or replace function"))
        assert [row[0] for row in await catalogue.fetch(definition, name)] == [migrated]


def test_query_names() -> None:
    """Every query that is used is defined, and every defined one is used."""
    for path in sql_files():
        module = path.with_suffix(".py")
        defined = set(Queries(path).by_name)
        used = set(re.findall(r"(?<![.\w])queries\.([a-z]\w+)", module.read_text("utf-8"))) - {
            "beside"
        }
        # Several packages have a module of this name.
        package = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        imported = rf"from {re.escape(package)} import (?:[^\n(]*|\([^)]*)\b{path.stem}\b"
        elsewhere = rf"\b{path.stem}\.queries\.(\w+)"
        for other in SOURCE.rglob("*.py"):
            text = other.read_text("utf-8")
            if re.search(imported, text):
                used |= set(re.findall(elsewhere, text))
        assert used == defined, path.name
