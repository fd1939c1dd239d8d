"""Keys that tenants sign visitors' identities with, verified conversations, counted incidents."""

from alembic import op

from hlas.store.migrations.isolation import execute_all, isolate

revision = "0007"
down_revision = "0006"

# The unique index finds the open conversation of a verified visitor, and guarantees that there is
# only one when two devices ask at once. Unverified ids are not in it.
TABLES = """
create table visitor_keys (
    tenant_id  uuid        not null,
    kid        text        not null,
    algorithm  text        not null,
    material   text        not null,
    created_at timestamptz not null default now(),
    constraint pk_visitor_keys primary key (tenant_id, kid),
    constraint fk_visitor_keys__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_visitor_keys__algorithm check (algorithm in ('HS256', 'ES256', 'RS256'))
);

alter table tenants
    add column identity_mode text not null default 'off',
    add constraint ck_tenants__identity_mode
        check (identity_mode in ('off', 'optional', 'required'));

alter table conversations
    add column is_verified boolean not null default false,
    add constraint ck_conversations__is_verified check (visitor_id is not null or not is_verified);
create unique index ix_conversations__verified
    on conversations (tenant_id, visitor_id) where is_verified and status = 'open';

alter table incidents
    add column started_at timestamptz,
    add column count bigint not null default 1,
    add constraint uq_incidents__tenant_id_kind_started_at unique (tenant_id, kind, started_at);
"""

# Keys and the mode affect only the tenant's own visitors, so the tenant may change them. Only the
# role that verifies signatures can read a secret.
RIGHTS = """
grant select on visitor_keys to hlas_app;
grant select (tenant_id, kid, algorithm, created_at), insert, delete
    on visitor_keys to hlas_tenant_admin;
grant update (identity_mode) on tenants to hlas_tenant_admin;
"""


def upgrade() -> None:
    execute_all(TABLES)
    isolate("visitor_keys")
    execute_all(RIGHTS)


def downgrade() -> None:
    op.execute("alter table incidents drop column started_at, drop column count")
    op.execute("drop index ix_conversations__verified")
    op.execute("alter table conversations drop column is_verified")
    op.execute("alter table tenants drop column identity_mode")
    op.execute("drop table visitor_keys")
