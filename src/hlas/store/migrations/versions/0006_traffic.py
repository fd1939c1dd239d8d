"""Traffic by minute and hour, the latest blocked requests, and who is signed in at the console."""

from alembic import op

from hlas.store.migrations.isolation import execute_all, isolate

revision = "0006"
down_revision = "0005"

# Requests whose tenant is not known count for the nil UUID, which no tenant has, so there is no
# foreign key. Minutes are for the last hour, hours for the last week, so neither has many rows.
TABLES = """
create table traffic (
    tenant_id uuid        not null,
    span      text        not null,
    start     timestamptz not null,
    kind      text        not null,
    detail    text        not null,
    count     bigint      not null,
    constraint pk_traffic primary key (tenant_id, span, start, kind, detail),
    constraint ck_traffic__span check (span in ('minute', 'hour'))
) with (fillfactor = 70);
create index ix_traffic__span_start on traffic (span, start);

create table blocked (
    tenant_id       uuid        not null,
    id              uuid        not null,
    reason          text        not null,
    scope           text        not null,
    route           text        not null,
    conversation_id uuid,
    request_id      text        not null,
    created_at      timestamptz not null,
    constraint pk_blocked primary key (tenant_id, id)
);
create index ix_blocked__id on blocked (id);

create table signins (
    tenant_id        uuid        not null,
    id               uuid        not null,
    administrator_id uuid        not null,
    secret_hash      bytea       not null,
    created_at       timestamptz not null default now(),
    last_seen_at     timestamptz not null default now(),
    constraint pk_signins primary key (tenant_id, id),
    constraint fk_signins__tenant_id_administrator_id__administrators
        foreign key (tenant_id, administrator_id)
        references administrators (tenant_id, id) on delete cascade,
    constraint ck_signins__secret_hash check (octet_length(secret_hash) = 32)
);
create index ix_signins__secret_hash on signins (secret_hash);
create index ix_signins__tenant_id_administrator_id on signins (tenant_id, administrator_id);
"""


def upgrade() -> None:
    execute_all(TABLES)
    for table in ("traffic", "blocked", "signins"):
        isolate(table)
    op.execute("grant select on traffic, blocked to hlas_tenant_admin")


def downgrade() -> None:
    op.execute("drop table signins, blocked, traffic")
