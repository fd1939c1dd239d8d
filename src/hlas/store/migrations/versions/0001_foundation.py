"""Tenants, domains, conversations, messages, incidents, events, and isolation between tenants."""

from alembic import op

from hlas.store.migrations.isolation import define, execute_all, isolate

revision = "0001"
down_revision = None

TABLES = """
create table tenants (
    id               uuid        not null,
    slug             text        not null,
    name             text        not null,
    is_active        boolean     not null default true,
    ui_config        jsonb       not null default '{}',
    fallback_text    text,
    token_generation integer     not null default 1,
    created_at       timestamptz not null default now(),
    updated_at       timestamptz not null default now(),
    constraint pk_tenants primary key (id),
    constraint uq_tenants__slug unique (slug),
    constraint ck_tenants__slug check (slug ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    constraint ck_tenants__name check (length(name) between 1 and 200),
    constraint ck_tenants__ui_config check (jsonb_typeof(ui_config) = 'object')
);

create table tenant_domains (
    tenant_id   uuid        not null,
    domain      text        not null,
    scheme      text,
    host        text        not null,
    port        integer,
    is_wildcard boolean     not null,
    created_at  timestamptz not null default now(),
    constraint pk_tenant_domains primary key (tenant_id, domain),
    constraint fk_tenant_domains__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_tenant_domains__scheme check (scheme in ('http', 'https')),
    constraint ck_tenant_domains__port check (port between 1 and 65535)
);
create index ix_tenant_domains__host on tenant_domains (host);

create table conversations (
    tenant_id       uuid        not null,
    id              uuid        not null,
    status          text        not null default 'open',
    visitor_id      text,
    origin          text        not null,
    meta            jsonb       not null default '{}',
    last_seq        integer     not null default 0,
    last_message_at timestamptz,
    created_at      timestamptz not null default now(),
    constraint pk_conversations primary key (tenant_id, id),
    constraint fk_conversations__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_conversations__status check (status in ('open', 'closed')),
    constraint ck_conversations__visitor_id check (length(visitor_id) <= 128)
) with (fillfactor = 75);
create index ix_conversations__tenant_id_visitor_id
    on conversations (tenant_id, visitor_id) where visitor_id is not null;
create index ix_conversations__created_at on conversations using brin (created_at);

create table messages (
    tenant_id       uuid        not null,
    id              uuid        not null,
    conversation_id uuid        not null,
    seq             integer     not null,
    role            text        not null,
    content         text        not null,
    meta            jsonb       not null default '{}',
    created_at      timestamptz not null default now(),
    constraint pk_messages primary key (tenant_id, id),
    constraint uq_messages__tenant_id_conversation_id_seq unique (tenant_id, conversation_id, seq),
    constraint fk_messages__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_messages__role check (role in ('user', 'assistant', 'operator', 'system')),
    constraint ck_messages__seq check (seq >= 1)
);
create index ix_messages__created_at on messages using brin (created_at);

create table incidents (
    tenant_id  uuid        not null,
    id         uuid        not null,
    kind       text        not null,
    details    jsonb       not null default '{}',
    created_at timestamptz not null default now(),
    constraint pk_incidents primary key (tenant_id, id),
    constraint fk_incidents__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade
);
create index ix_incidents__tenant_id_created_at on incidents (tenant_id, created_at);

-- No foreign key: the audit of a tenant outlives the tenant.
create table events (
    tenant_id  uuid        not null,
    id         uuid        not null,
    actor      text        not null,
    action     text        not null,
    target     text        not null,
    before     jsonb,
    after      jsonb,
    request_id text,
    created_at timestamptz not null default now(),
    constraint pk_events primary key (tenant_id, id)
);
create index ix_events__tenant_id_created_at on events (tenant_id, created_at);
create index ix_events__created_at on events (created_at);
"""

RIGHTS = """
grant usage on schema public to hlas_app, hlas_operator, hlas_writer, hlas_resolver;
grant select on alembic_version to hlas_app, hlas_operator;
grant select on tenants, tenant_domains, messages to hlas_app;
grant select, insert on conversations, incidents, events to hlas_app;
grant update (status) on conversations to hlas_app;

grant select on tenants, tenant_domains to hlas_resolver;
create policy resolver_reads on tenants for select to hlas_resolver using (true);
create policy resolver_reads on tenant_domains for select to hlas_resolver using (true);
"""

# The origin is all we know before there is a tenant. The most specific entry wins:
# a port over any port, a host over a wildcard, a longer wildcard over a shorter one.
RESOLVE_ORIGIN = """
create function resolve_origin(p_scheme text, p_hosts text[], p_port integer)
returns table (tenant_id uuid, is_active boolean)
language sql stable security definer
set search_path = pg_catalog, public, pg_temp
as $$
    select t.id, t.is_active
    from public.tenant_domains d
    join public.tenants t on t.id = d.tenant_id
    where d.host = any (p_hosts)
      and d.is_wildcard = (d.host <> p_hosts[1])
      and (d.scheme is null or d.scheme = p_scheme)
      and (d.port is null or d.port = p_port)
    order by d.is_wildcard, length(d.host) desc, d.port nulls last, d.scheme nulls last
    limit 1
$$
"""

# One origin, one tenant: a unique constraint without tenant_id could not be distributed,
# so a trigger takes a lock on the domain's name and checks the entries of all tenants.
CLAIM_DOMAIN = """
create function claim_domain() returns trigger
language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(new.domain, 0));
    if exists (
        select from public.tenant_domains d
        where d.domain = new.domain and d.tenant_id <> new.tenant_id
    ) then
        raise unique_violation using constraint = 'uq_tenant_domains__domain';
    end if;
    return new;
end
$$
"""


def upgrade() -> None:
    execute_all(TABLES)
    isolate("tenants", column="id")
    for table in ("tenant_domains", "conversations", "messages", "incidents", "events"):
        isolate(table)
    execute_all(RIGHTS)
    define(
        "resolve_origin(text, text[], integer)",
        owner="hlas_resolver",
        callers="hlas_app, hlas_operator",
        statement=RESOLVE_ORIGIN,
    )
    define(
        "claim_domain()",
        owner="hlas_resolver",
        callers="hlas_operator, session_user",
        statement=CLAIM_DOMAIN,
    )
    op.execute(
        "create trigger claim_domain before insert or update of domain on tenant_domains "
        "for each row execute function claim_domain()"
    )


def downgrade() -> None:
    op.execute("drop table events, incidents, messages, conversations, tenant_domains, tenants")
    op.execute("drop function resolve_origin(text, text[], integer)")
    op.execute("drop function claim_domain()")
    op.execute("revoke select on alembic_version from hlas_app, hlas_operator")
    op.execute(
        "revoke usage on schema public from hlas_app, hlas_operator, hlas_writer, hlas_resolver"
    )
