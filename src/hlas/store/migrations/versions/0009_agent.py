"""The model agent: models, each tenant's settings, money, products and MCP servers."""

from alembic import op

from hlas.store.migrations.isolation import execute_all, isolate, read

revision = "0009"
down_revision = "0008"

# Money is in nano-dollars: prices for a million tokens, amounts in all. A reservation that is
# never settled, as after a crash, counts in full. `spend` has the totals of a day, so that a cap is
# checked without reading every reservation. A budget is made with its tenant: its row is the lock
# under which everything about a tenant's money happens. New tenants may spend 5 dollars a day, 50 a
# month and half a dollar in a conversation; null is no cap. Models are the operator's: their tenant
# is the nil UUID, as that of operators' keys.
TABLES = """
create table models (
    tenant_id    uuid        not null default '00000000-0000-0000-0000-000000000000',
    name         text        not null,
    base_url     text        not null,
    model        text        not null,
    key          bytea,
    input_price  bigint      not null,
    output_price bigint      not null,
    created_at   timestamptz not null default now(),
    constraint pk_models primary key (tenant_id, name),
    constraint ck_models__price check (input_price >= 0 and output_price >= 0)
);

create table agent_settings (
    tenant_id         uuid        not null,
    models            text[]      not null default '{}',
    instructions      text        not null default '',
    tools             text[]      not null
        default '{search_knowledge,get_product,hand_over}',
    acting_tools      text[]      not null default '{}',
    link_hosts        text[]      not null default '{}',
    max_steps         integer,
    is_debug          boolean     not null default false,
    -- A secret of the prompt: an answer that contains it is not sent.
    canary            text        not null default gen_random_uuid()::text,
    updated_at        timestamptz not null default now(),
    constraint pk_agent_settings primary key (tenant_id),
    constraint fk_agent_settings__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_agent_settings__instructions check (length(instructions) <= 8000),
    constraint ck_agent_settings__max_steps check (max_steps between 1 and 5)
);

create table budgets (
    tenant_id        uuid   not null,
    cap_day          bigint default 5000000000,
    cap_month        bigint default 50000000000,
    cap_conversation bigint default 500000000,
    constraint pk_budgets primary key (tenant_id),
    constraint fk_budgets__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_budgets__caps check (cap_day >= 0 and cap_month >= 0 and cap_conversation >= 0)
);

insert into budgets (tenant_id) select id from tenants;

create table spend (
    tenant_id     uuid   not null,
    day           date   not null,
    model         text   not null,
    requests      bigint not null default 0,
    input_tokens  bigint not null default 0,
    output_tokens bigint not null default 0,
    amount        bigint not null default 0,
    constraint pk_spend primary key (tenant_id, day, model),
    constraint fk_spend__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade
);

create table reservations (
    tenant_id       uuid        not null,
    id              uuid        not null,
    conversation_id uuid        not null,
    run_id          uuid        not null,
    model           text        not null,
    day             date        not null,
    amount          bigint      not null,
    is_settled      boolean     not null default false,
    -- Given back: the provider has processed nothing.
    is_released     boolean     not null default false,
    created_at      timestamptz not null default now(),
    constraint pk_reservations primary key (tenant_id, id),
    constraint fk_reservations__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_reservations__amount check (amount >= 0)
);
create index ix_reservations__conversation_id on reservations (tenant_id, conversation_id);
create index ix_reservations__run_id on reservations (tenant_id, run_id);

create table products (
    tenant_id   uuid        not null,
    sku         text        not null,
    name        text        not null,
    description text        not null default '',
    price       text        not null default '',
    url         text        not null default '',
    attributes  jsonb       not null default '{}',
    subject     text        not null generated always as (knowledge_fold(name)) stored,
    words       tsvector    not null generated always as (
        setweight(knowledge_lexemes(null, name), 'A')
        || setweight(knowledge_lexemes(null, description), 'B')) stored,
    updated_at  timestamptz not null default now(),
    constraint pk_products primary key (tenant_id, sku),
    constraint fk_products__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_products__sku check (length(sku) between 1 and 100),
    constraint ck_products__name check (length(name) between 1 and 500),
    constraint ck_products__description check (length(description) <= 8000)
);

create table mcp_servers (
    tenant_id  uuid        not null,
    name       text        not null,
    url        text        not null default '',
    command    text[]      not null default '{}',
    headers    bytea,
    created_at timestamptz not null default now(),
    constraint pk_mcp_servers primary key (tenant_id, name),
    constraint fk_mcp_servers__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_mcp_servers__name check (name ~ '^[a-z][a-z0-9_]{0,30}$'),
    constraint ck_mcp_servers__url_or_command check ((url = '') <> (command = '{}'))
);

create table confirmations (
    tenant_id       uuid        not null,
    id              uuid        not null,
    conversation_id uuid        not null,
    tool            text        not null,
    arguments       jsonb       not null,
    state           text        not null default 'asked',
    -- What became of a confirmed call; null: it is not known.
    result          text,
    created_at      timestamptz not null default now(),
    constraint pk_confirmations primary key (tenant_id, id),
    constraint fk_confirmations__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_confirmations__state check (state in ('asked', 'confirmed', 'declined'))
);
create index ix_confirmations__conversation_id on confirmations (tenant_id, conversation_id);

alter table runs
    add column trace jsonb,
    -- Attempts in which the agent was asked. The first one always counts, without being written.
    add column asked integer not null default 1;

create table evaluations (
    tenant_id  uuid        not null,
    id         uuid        not null,
    source     text        not null,
    result     jsonb       not null,
    created_at timestamptz not null default now(),
    constraint pk_evaluations primary key (tenant_id, id),
    constraint fk_evaluations__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade
);
"""

ISOLATED = (
    "models",
    "agent_settings",
    "budgets",
    "spend",
    "reservations",
    "products",
    "mcp_servers",
    "confirmations",
    "evaluations",
)

# A tenant's administrators choose instructions and tools. Models, keys, prices and caps are the
# operator's: they decide what a month costs. So is the debug flag, which shows clients what a model
# is told. A stored header is never shown again, and nobody needs to read a canary.
RIGHTS = """
grant select (tenant_id, models, instructions, tools, acting_tools, link_hosts, max_steps, is_debug)
    on agent_settings to hlas_tenant_admin;
grant insert (tenant_id) on agent_settings to hlas_tenant_admin;
grant update (instructions, tools, acting_tools, link_hosts, max_steps, updated_at)
    on agent_settings to hlas_tenant_admin;
grant select on budgets, spend to hlas_tenant_admin;
grant select (tenant_id, models, is_debug) on agent_settings to hlas_app;
grant select on products to hlas_app;
grant select, insert, update, delete on products to hlas_tenant_admin;
grant select (tenant_id, name, url, command, created_at) on mcp_servers to hlas_tenant_admin;
grant delete on mcp_servers to hlas_tenant_admin;
grant insert (tenant_id, name, url, headers) on mcp_servers to hlas_tenant_admin;
grant select, insert on evaluations to hlas_tenant_admin;
"""

FUNCTIONS = {
    "reserve_spend(uuid, uuid, uuid, uuid, text, bigint)": "reserve_spend.sql",
    "settle_spend(uuid, uuid, bigint, bigint, bigint)": "settle_spend.sql",
}


def upgrade() -> None:
    execute_all(TABLES)
    for table in ISOLATED:
        isolate(table)
    execute_all(RIGHTS)
    for signature, file in FUNCTIONS.items():
        op.execute(read(file))
        op.execute(f"revoke all on function {signature} from public")
        op.execute(f"grant execute on function {signature} to hlas_operator")


def downgrade() -> None:
    for signature in FUNCTIONS:
        op.execute(f"drop function {signature}")
    op.execute("alter table runs drop column trace, drop column asked")
    op.execute(f"drop table {', '.join(ISOLATED)}")
