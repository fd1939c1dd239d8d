"""Helpers for tests of administration: keys, and a client that uses one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from factories import Live
from hlas.agent.providers import models
from hlas.agent.providers.models import NewModel
from hlas.operators import administrators
from hlas.store.db import Database
from hlas.store.vault import Vault


@dataclass
class Desk:
    """An administrator with a key."""

    live: Live
    key: str
    prefix: str

    async def ask(
        self, method: str, path: str, *, tag: str | None = None, **options: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        if tag is not None:
            headers["If-Match"] = tag
        return await self.live.client.request(method, f"/admin{path}", headers=headers, **options)

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = await self.ask("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def tag(self, path: str) -> str:
        return str((await self.ask("GET", path)).headers["ETag"])


async def make_desk(live: Live, operators: Database, slug: str | None = None) -> Desk:
    """Create an operator's desk, or that of a tenant's own administrator."""
    added, key = await administrators.add(operators, "Ada", slug)
    return Desk(live, key, added.prefix)


async def add_model(operators: Database, name: str = "tiny") -> str:
    """A free model at an address where nothing listens; its name."""
    new = NewModel(name=name, base_url="http://127.0.0.1:1/v1", model=name, is_free=True)
    return (await models.add(operators, Vault(""), new)).name


async def add_server(operators: Database, tenant_id: str, name: str = "books") -> str:
    """An MCP server of a tenant, which nobody asks; its name."""
    await operators.execute(
        "insert into mcp_servers (tenant_id, name, url) "
        "values ($1::text::uuid, $2, 'https://mcp.example')",
        tenant_id,
        name,
    )
    return name


async def add_product(operators: Database, tenant_id: str, sku: str = "A-1") -> str:
    """A product of a tenant; its sku."""
    await operators.execute(
        "insert into products (tenant_id, sku, name) values ($1::text::uuid, $2, 'A book')",
        tenant_id,
        sku,
    )
    return sku


async def add_source(operators: Database, tenant_id: str) -> str:
    """A page, at an address that is refused, that knowledge was imported from; its id."""
    source_id = str(uuid4())
    await operators.execute(
        "insert into knowledge_sources (tenant_id, id, kind, location) "
        "values ($1::text::uuid, $2::text::uuid, 'page', 'https://127.0.0.1/')",
        tenant_id,
        source_id,
    )
    return source_id


async def audit_of(operators: Database) -> list[tuple[str, str, str]]:
    """Actor, action and target of every event, oldest first."""
    rows = await operators.all("select actor, action, target from events order by id")
    return [(row["actor"], row["action"], row["target"]) for row in rows]


@asynccontextmanager
async def lock_rows(operators: Database, statement: str) -> AsyncIterator[None]:
    """Keep rows locked, so that concurrent changes wait and all start from the same state."""
    async with operators.transaction() as connection:
        await connection.execute(statement)
        yield


async def wait_for_locks(operators: Database, number: int) -> None:
    """Wait until this many statements wait for a lock in this database."""
    while True:
        row = await operators.one(
            "select count(distinct l.pid) as waiting from pg_locks l "
            "join pg_stat_activity a using (pid) "
            "where not l.granted and a.datname = current_database()"
        )
        if row is not None and row["waiting"] >= number:
            return
        await asyncio.sleep(0.02)


async def dump_state(operators: Database) -> dict[str, Any]:
    """The state that must not change. A key's last use does not count."""
    tables = (
        "tenants",
        "tenant_domains",
        "conversations",
        "messages",
        "knowledge",
        "visitor_keys",
        "models",
        "agent_settings",
        "mcp_servers",
        "products",
        "unanswered",
        "events",
    )
    return {
        table: [dict(row) for row in await operators.all(f"select * from {table} order by 1, 2")]
        for table in tables
    }
