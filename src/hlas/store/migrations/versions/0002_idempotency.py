"""Idempotency keys, and the one function that writes messages."""

from alembic import op

from hlas.store.migrations.isolation import define, execute_all, isolate, read

revision = "0002"
down_revision = "0001"

# response is json, not jsonb: json keeps the text as it was, so a replay is byte-identical.
TABLES = """
create table idempotency_keys (
    tenant_id       uuid        not null,
    conversation_id uuid        not null,
    key             text        not null,
    request_hash    bytea       not null,
    response        json        not null,
    created_at      timestamptz not null default now(),
    constraint pk_idempotency_keys primary key (tenant_id, conversation_id, key),
    constraint fk_idempotency_keys__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_idempotency_keys__key check (length(key) between 1 and 255)
);
create index ix_idempotency_keys__created_at on idempotency_keys (created_at);
"""

RIGHTS = """
grant select on idempotency_keys to hlas_app;
grant select (id, is_active, token_generation) on tenants to hlas_writer;
grant select, update (last_seq, last_message_at) on conversations to hlas_writer;
grant insert on messages to hlas_writer;
grant select, insert on idempotency_keys to hlas_writer;
create policy writer_reads on tenants for select to hlas_writer using (true);
create policy writer_reads on conversations for select to hlas_writer using (true);
create policy writer_counts on conversations for update to hlas_writer
    using (true) with check (true);
create policy writer_adds on messages for insert to hlas_writer with check (true);
create policy writer_reads on idempotency_keys for select to hlas_writer using (true);
create policy writer_claims on idempotency_keys for insert to hlas_writer with check (true);
"""

SIGNATURE = (
    "write_messages(uuid[], uuid[], integer[], uuid[], text[], text[], jsonb[], text[], "
    "bytea[], json[])"
)


def upgrade() -> None:
    execute_all(TABLES)
    isolate("idempotency_keys")
    execute_all(RIGHTS)
    define(
        SIGNATURE,
        owner="hlas_writer",
        callers="hlas_app",
        statement=read("migrations/versions/0002_write_messages.sql"),
    )


def downgrade() -> None:
    op.execute(f"drop function {SIGNATURE}")
    op.execute("drop table idempotency_keys")
    for policy, table in (
        ("writer_reads", "tenants"),
        ("writer_reads", "conversations"),
        ("writer_counts", "conversations"),
        ("writer_adds", "messages"),
    ):
        op.execute(f"drop policy {policy} on {table}")
    op.execute("revoke all on tenants, conversations, messages from hlas_writer")
    op.execute("revoke select (id, is_active, token_generation) on tenants from hlas_writer")
    op.execute("revoke update (last_seq, last_message_at) on conversations from hlas_writer")
