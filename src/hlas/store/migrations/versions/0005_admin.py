"""Administrators' keys, the role of a tenant's own administrators, and an append-only audit."""

from alembic import op

from hlas.store.migrations.isolation import execute_all, isolate

revision = "0005"
down_revision = "0004"

# The tenant of an operator's key is the nil UUID, as in events without a tenant, so every key of
# the table can include tenant_id, and isolation needs no special case.
TABLES = """
create table administrators (
    tenant_id    uuid        not null,
    id           uuid        not null,
    name         text        not null,
    role         text        not null,
    prefix       text        not null,
    key_hash     bytea       not null,
    created_at   timestamptz not null default now(),
    last_used_at timestamptz,
    revoked_at   timestamptz,
    constraint pk_administrators primary key (tenant_id, id),
    constraint ck_administrators__name check (length(name) between 1 and 100),
    constraint ck_administrators__role check (role in ('operator', 'tenant')),
    constraint ck_administrators__reach check (
        (role = 'operator') = (tenant_id = '00000000-0000-0000-0000-000000000000')),
    constraint ck_administrators__key_hash check (octet_length(key_hash) = 32)
);
create index ix_administrators__prefix on administrators (prefix);

alter table tenants
    add column retention_days integer,
    add constraint ck_tenants__retention_days check (retention_days between 1 and 36500);

create index ix_events__id on events (id);
"""

# A tenant's administrator may change only what cannot harm other tenants: not the domains, which
# could take another tenant's visitors, not the limits, and not whether the tenant is active.
RIGHTS = """
grant usage on schema public to hlas_tenant_admin;
grant select on tenants, tenant_domains, conversations, messages, incidents to hlas_tenant_admin;
grant update (name, ui_config, fallback_text, retention_days, token_generation, updated_at)
    on tenants to hlas_tenant_admin;
grant update (status) on conversations to hlas_tenant_admin;
grant select, insert, update, delete on knowledge to hlas_tenant_admin;
grant select, insert on events to hlas_tenant_admin;
revoke update, delete on events from hlas_operator;
"""


def upgrade() -> None:
    execute_all(TABLES)
    isolate("administrators")
    execute_all(RIGHTS)


def downgrade() -> None:
    op.execute("grant update, delete on events to hlas_operator")
    op.execute(
        "revoke all on tenants, tenant_domains, conversations, messages, incidents, knowledge, "
        "events from hlas_tenant_admin"
    )
    op.execute("revoke usage on schema public from hlas_tenant_admin")
    op.execute("drop index ix_events__id")
    op.execute("alter table tenants drop column retention_days")
    op.execute("drop table administrators")
