"""The benchmark's PostgreSQL: its own server with fsync on, and databases of any size."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from bench.machine import processor_seconds
from hlas.store import embedded, migrations
from hlas.store.logins import Logins

TENANTS = 8
MIGRATED = "migrated"
# All other settings are those of `hlas serve`. pgbench alone uses 64 connections.
SETTINGS = {"max_connections": "300"}

# Foreign keys are not checked: they hold by construction, and there are ten million rows.
FILL = """
set session_replication_role = replica;
set synchronous_commit = off;
set work_mem = '256MB';
truncate tenants cascade;
truncate events;
-- Nobody answers, so that a message is only a message; older revisions have no such column.
do $$
begin
    if exists (select from information_schema.columns
               where table_name = 'conversations' and column_name = 'handler') then
        alter table conversations alter column handler set default 'human';
        alter table tenants alter column handler set default 'human';
    end if;
end
$$;
insert into tenants (id, slug, name)
select ('00000000-0000-7000-9000-' || lpad(n::text, 12, '0'))::uuid, 'shop-' || n, 'Shop ' || n
from generate_series(1, {tenants}) n;
insert into tenant_domains (tenant_id, domain, host, is_wildcard)
select id, slug || '.example', slug || '.example', false from tenants;
insert into conversations (tenant_id, id, origin, last_seq, last_message_at)
select ('00000000-0000-7000-9000-' || lpad((1 + n % {tenants})::text, 12, '0'))::uuid,
       uuidv7(), 'https://shop-' || (1 + n % {tenants}) || '.example', {each}, now()
from generate_series(1, {conversations}) n;
insert into messages (tenant_id, id, conversation_id, seq, role, content)
select c.tenant_id, uuidv7(), c.id, s, 'user', {text}
from conversations c, generate_series(1, {each}) s;
insert into idempotency_keys (tenant_id, conversation_id, key, request_hash, response)
select m.tenant_id, m.conversation_id, gen_random_uuid()::text, sha256(m.id::text::bytea),
       json_build_object('conversation_id', m.conversation_id, 'message_id', m.id)
from messages m
order by m.tenant_id, m.conversation_id, m.seq;
"""

TEXT = "'Hello, do you have the blue one in stock? I would like two of them by Friday.'"


@dataclass(frozen=True)
class Conversation:
    tenant_id: str
    id: str
    origin: str


class Store:
    def __init__(self, server: embedded.Server) -> None:
        self._server = server
        self.directory = server.data_dir

    def url(self, database: str) -> str:
        """The URL of the owner, as in DATABASE_URL."""
        return _at(self._server.url, database)

    def superuser_url(self, database: str) -> str:
        """Without row-level security, for the other services."""
        return _at(self._server.superuser_url, database)

    def processor_seconds(self) -> float:
        assert self._server.pid is not None
        return processor_seconds(self._server.pid)

    def create(self, database: str) -> None:
        """Migrate once, then clone: the roles of a prefix belong to one database."""
        if not self.rows("postgres", "select 1 from pg_database where datname = $1", MIGRATED):
            self.run("postgres", f"create database {MIGRATED} owner hlas_owner")
            migrations.upgrade(Logins(self.url(MIGRATED)))
        self.run("postgres", f"create database {database} template {MIGRATED} owner hlas_owner")

    def drop(self, database: str) -> None:
        self.run("postgres", f"drop database {database} with (force)")

    def fill(self, database: str, messages: int, each: int) -> None:
        """Insert messages, `each` of them in one conversation, every one with its key."""
        conversations = messages // each
        script = FILL.format(tenants=TENANTS, conversations=conversations, each=each, text=TEXT)
        self.run(database, script)
        for table in ("conversations", "messages", "idempotency_keys", "tenants"):
            self.run(database, f"vacuum (analyze) {table}")
        self.settle()

    def conversations(self, database: str, count: int) -> list[Conversation]:
        """Conversations chosen at random."""
        rows = self.rows(
            database,
            "select tenant_id::text, id::text, origin from conversations "
            f"where origin <> 'https://pgbench.example' order by md5(id::text) limit {count}",
        )
        return [Conversation(*row) for row in rows]

    def count_stored(self, database: str, conversations: list[Conversation]) -> int:
        """Count messages in these conversations; checks keys and gapless numbers."""
        found = self.rows(
            database,
            "select coalesce(sum(c.last_seq), 0), "
            "  coalesce(sum((select count(*) from messages m where m.tenant_id = c.tenant_id"
            "    and m.conversation_id = c.id)), 0), "
            "  coalesce(sum((select count(*) from idempotency_keys k where k.tenant_id ="
            "    c.tenant_id and k.conversation_id = c.id)), 0) "
            "from conversations c where c.id = any ($1::uuid[])",
            [conversation.id for conversation in conversations],
        )
        numbered, messages, keys = (int(value) for value in found[0])
        if not numbered == messages == keys:
            raise RuntimeError(f"{messages} messages, {keys} keys, numbered up to {numbered}")
        return messages

    def log_bytes(self) -> float:
        """Bytes of write-ahead log since the server was created."""
        query = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
        return float(self.rows("postgres", query)[0][0])

    def bytes_each(self, database: str) -> float:
        """Bytes on disk of a stored message with its key and all indexes."""
        query = (
            "select (pg_total_relation_size('messages') + "
            "pg_total_relation_size('idempotency_keys'))::float / count(*) from messages"
        )
        return float(self.rows(database, query)[0][0])

    def settle(self) -> None:
        """Checkpoint before every run, so that no run writes pages of another."""
        self.run("postgres", "checkpoint")

    def run(self, database: str, script: str) -> None:
        async def work() -> None:
            connection = await asyncpg.connect(self.superuser_url(database))
            try:
                await connection.execute(script, timeout=1800)
            finally:
                await connection.close()

        asyncio.run(work())

    def rows(self, database: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async def work() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.superuser_url(database))
            try:
                found: list[asyncpg.Record] = await connection.fetch(query, *arguments)
                return found
            finally:
                await connection.close()

        return asyncio.run(work())


def _at(url: str, database: str) -> str:
    head, _, query = url.partition("?")
    return f"{head.rpartition('/')[0]}/{database}?{query}"


@contextmanager
def open_store() -> Iterator[Store]:
    directory = Path(tempfile.mkdtemp(prefix="hlas-bench-"))
    # Others may pass through to the server's own directory, as DATA_DIR allows.
    directory.chmod(0o711)
    server = embedded.start(directory / "data", settings=SETTINGS)
    try:
        yield Store(server)
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
