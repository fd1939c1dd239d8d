"""Runs: answers in the making, who handles a conversation, and what live readers look at."""

from alembic import op

from hlas.store.migrations.isolation import define, execute_all, isolate, read

revision = "0008"
down_revision = "0007"

# A run answers the visitor's messages from first_seq to reply_to. A conversation has at most one
# run under way and one that waits. What was cancelled may be answered by another run later: hence
# the last column of ix_runs__reply_to, which is not partial because streams, erasure and the
# foreign key look for all runs of a conversation.
#
# run_frames and changes are UNLOGGED: after a crash of the database nobody misses them, and commits
# of messages do not wait for them. The sequence is an object of its own, because one that belongs
# to an UNLOGGED table would start again from 1 after a crash. run_frames has no foreign key: a run
# that is deleted meanwhile must not fail the statement that writes the frames of all runs.
TABLES = """
alter table tenants
    add column handler text not null default 'agent',
    add constraint ck_tenants__handler check (handler in ('agent', 'human'));

alter table conversations
    add column handler text not null default 'agent',
    add column handler_epoch integer not null default 0,
    add constraint ck_conversations__handler check (handler in ('agent', 'human'));

create table runs (
    tenant_id       uuid        not null,
    id              uuid        not null,
    conversation_id uuid        not null,
    first_seq       integer     not null,
    reply_to        integer     not null,
    epoch           integer     not null,
    state           text        not null,
    is_stopping     boolean     not null default false,
    attempt         integer     not null default 0,
    owner           uuid,
    -- Renewed while its owner works on it.
    lease_until     timestamptz not null default now() + interval '3 s',
    message_id      uuid,
    created_at      timestamptz not null default now(),
    constraint pk_runs primary key (tenant_id, id),
    constraint fk_runs__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_runs__state check (
        state in ('waiting', 'running', 'done', 'stopped', 'cancelled'))
) with (fillfactor = 80);
create unique index ix_runs__reply_to
    on runs (tenant_id, conversation_id, reply_to, (case when state = 'cancelled' then id end))
    nulls not distinct;
create unique index ix_runs__active
    on runs (tenant_id, conversation_id, state) where state in ('waiting', 'running');
create index ix_runs__lease_until on runs (lease_until) where state in ('waiting', 'running');

create unlogged table run_frames (
    tenant_id uuid    not null,
    run_id    uuid    not null,
    attempt   integer not null,
    number    integer not null,
    frames    text    not null,
    constraint pk_run_frames primary key (tenant_id, run_id, attempt, number)
);

create sequence change_ids;
create unlogged table changes (
    tenant_id       uuid        not null,
    id              bigint      not null default nextval('change_ids'),
    conversation_id uuid        not null,
    worker          uuid,
    created_at      timestamptz not null default clock_timestamp(),
    constraint pk_changes primary key (tenant_id, id)
);
create index ix_changes__id on changes (id);
"""

RIGHTS = """
grant select on runs, run_frames to hlas_app, hlas_tenant_admin;
grant update (is_stopping) on runs to hlas_app;
grant update (handler, handler_epoch) on conversations to hlas_tenant_admin;
grant update (handler) on tenants to hlas_tenant_admin;
grant update (state) on runs to hlas_tenant_admin;
grant select, insert, update on runs to hlas_writer;
grant update (handler, handler_epoch) on conversations to hlas_writer;
grant select (tenant_id, id, conversation_id, seq, role) on messages to hlas_writer;
create policy writer_reads on messages for select to hlas_writer using (true);
grant usage on sequence change_ids to hlas_operator;
create policy writer_runs on runs to hlas_writer using (true) with check (true);
"""

BEFORE = (
    "write_messages(uuid[], uuid[], integer[], uuid[], text[], text[], jsonb[], text[], "
    "bytea[], json[])"
)
SIGNATURE = (
    "write_messages(uuid, uuid[], uuid[], integer[], uuid[], text[], text[], jsonb[], text[], "
    "bytea[], json[], uuid[], integer[])"
)
START_RUN = "start_run(uuid, uuid)"
STORE_RESPONSE = "store_response(uuid, uuid, text, bytea, json)"


def upgrade() -> None:
    execute_all(TABLES)
    for table in ("runs", "run_frames", "changes"):
        isolate(table)
    execute_all(RIGHTS)
    op.execute(f"drop function {BEFORE}")
    _define(SIGNATURE, "write_messages.sql")
    _define(START_RUN, "start_run.sql", callers="hlas_app, hlas_operator, hlas_tenant_admin")
    _define(STORE_RESPONSE, "store_response.sql")


def _define(signature: str, file: str, callers: str = "hlas_app") -> None:
    define(signature, owner="hlas_writer", callers=callers, statement=read(file))


def downgrade() -> None:
    op.execute(f"drop function {STORE_RESPONSE}")
    op.execute(f"drop function {START_RUN}")
    op.execute(f"drop function {SIGNATURE}")
    _define(BEFORE, "migrations/versions/0002_write_messages.sql")
    op.execute("drop policy writer_reads on messages")
    op.execute(
        "revoke select (tenant_id, id, conversation_id, seq, role) on messages from hlas_writer"
    )
    op.execute("drop table changes, run_frames, runs")
    op.execute("drop sequence change_ids")
    op.execute("alter table conversations drop column handler, drop column handler_epoch")
    op.execute("alter table tenants drop column handler")
