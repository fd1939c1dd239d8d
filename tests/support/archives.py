"""Conversations in bulk, as they would be after months, made by the database itself."""

import hashlib
from pathlib import Path

from clusters import query
from hlas.store import backups, embedded, migrations
from hlas.store.db import Database
from hlas.store.logins import OPERATOR, Logins
from hlas.tenants import tenants

# As the application makes ids: the time first, then chance.
_ID = """(lpad(to_hex((extract(epoch from {moment}) * 1000)::bigint), 12, '0') || '7'
    || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid"""

_CONVERSATIONS = f"""
insert into conversations
    (tenant_id, id, visitor_id, origin, meta, last_seq, last_message_at, created_at)
select $1::text::uuid, {_ID.format(moment="moment")}, $2, 'https://shop.example',
       '{{"email": "jana@example.com"}}', $4, moment, moment
from (select now() - make_interval(secs => 86400 * $5::float8) as moment
      from generate_series(1, $3)) as s
returning id
"""
_MESSAGES = f"""
insert into messages (tenant_id, id, conversation_id, seq, role, content, meta, created_at)
select c.tenant_id, {_ID.format(moment="c.created_at")}, c.id, n,
       case n % 2 when 1 then 'user' else 'assistant' end, 'message ' || n,
       case n % 2 when 1 then '{{"page": "/basket"}}' else '{{"reply_to": 1}}' end::jsonb,
       c.created_at
from conversations c, generate_series(1, c.last_seq) as n
where c.tenant_id = $1::text::uuid and c.id = any ($2)
"""
_KEYS = """
insert into idempotency_keys (tenant_id, conversation_id, key, request_hash, response)
select tenant_id, conversation_id, 'key ' || seq, '\\x00', json_build_object('text', content)
from messages
where tenant_id = $1::text::uuid and conversation_id = any ($2)
"""


async def fill(
    operators: Database,
    tenant_id: str,
    conversations: int,
    messages: int,
    *,
    visitor_id: str | None = None,
    days: float = 0.0,
) -> list[str]:
    """So many conversations, each with so many messages and keys, last heard of days ago."""
    rows = await operators.all(_CONVERSATIONS, tenant_id, visitor_id, conversations, messages, days)
    found = [row["id"] for row in rows]
    await operators.execute(_MESSAGES, tenant_id, found)
    await operators.execute(_KEYS, tenant_id, found)
    return [str(one) for one in found]


async def counts(operators: Database, tenant_id: str) -> tuple[int, int, int]:
    """Conversations, messages and idempotency keys of a tenant."""
    row = await operators.one(
        "select (select count(*) from conversations where tenant_id = t.id) as conversations,"
        " (select count(*) from messages where tenant_id = t.id) as messages,"
        " (select count(*) from idempotency_keys where tenant_id = t.id) as keys"
        " from tenants t where id = $1::text::uuid",
        tenant_id,
    )
    assert row is not None
    return row["conversations"], row["messages"], row["keys"]


TABLES = (
    "tenants",
    "tenant_domains",
    "conversations",
    "messages",
    "idempotency_keys",
    "knowledge",
    "visitor_keys",
    "administrators",
    "events",
    "incidents",
)


async def furnish(data_dir: Path, messages: int) -> None:
    """A tenant with so many messages."""
    with embedded.running(data_dir) as server:
        await migrations.upgrade_in_thread(Logins(server.url))
        operators = await Database.open(Logins(server.url), OPERATOR, statement_seconds=120)
        made = await tenants.add(operators, "Shop", "shop", ["shop.example"])
        await fill(operators, str(made.id), messages // 25, 25, visitor_id="jana")
        await operators.close()


def fingerprint(data_dir: Path) -> dict[str, str]:
    """Every row of every table."""
    with embedded.running(data_dir) as server:
        url = backups._url_of(server.superuser_url, "hlas")
        found = {}
        for table in TABLES:
            rows = query(url, f"select t::text from {table} t order by 1")
            found[table] = f"{len(rows.splitlines())} {hashlib.sha256(rows.encode()).hexdigest()}"
        found["rights"] = query(
            url,
            "select relname, relowner::regrole, relacl, relrowsecurity, relforcerowsecurity"
            " from pg_class where relnamespace = 'public'::regnamespace order by 1",
        )
        found["functions"] = query(
            url,
            "select proname, proowner::regrole, proacl, prosecdef from pg_proc"
            " where pronamespace = 'public'::regnamespace"
            " and proowner <> 'postgres'::regrole and proname !~ 'trgm|unaccent|similar'"
            " order by 1",
        )
        return found
