"""Answers people trust: passages, sources, vectors, unanswered questions, ratings, contacts."""

from alembic import op

from hlas.store.migrations.isolation import execute_all, isolate

revision = "0010"
down_revision = "0009"

# Ranking happens in the workers, which keep an index of each tenant's knowledge (ADR-0015). They
# read what has a higher version than they know: versions are taken under the tenant's lock
# (entries.sql), so those of one tenant become visible in order.
# A vector belongs to a version of its entry and to the model that made it; another one is stale.
# An unanswered question is a reference to the visitor's message, so that it is erased with it.
TABLES = """
create sequence knowledge_versions;
create table knowledge_sources (
    tenant_id    uuid        not null,
    id           uuid        not null,
    kind         text        not null,
    -- The name of a file or the address of a page or a site.
    location     text        not null,
    language     text,
    -- Questions of the source that somebody has removed or not taken: a refresh leaves them out.
    left_out     text[]      not null default '{}',
    created_at   timestamptz not null default now(),
    refreshed_at timestamptz not null default now(),
    constraint pk_knowledge_sources primary key (tenant_id, id),
    constraint uq_knowledge_sources__tenant_id_location unique (tenant_id, location),
    constraint fk_knowledge_sources__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_knowledge_sources__kind check (kind in ('file', 'page', 'site')),
    constraint ck_knowledge_sources__location check (length(location) between 1 and 2000),
    constraint ck_knowledge_sources__language check (language in ('cs', 'en'))
);

alter table knowledge
    drop column subject,
    drop column words,
    add column kind text not null default 'answer',
    -- Other ways to ask the same question.
    add column wordings text[] not null default '{}',
    -- The page it was taken from, to which visitors are led.
    add column url text not null default '',
    add column source_id uuid,
    -- The question in the source, which stays when somebody rewords it here.
    add column imported_as text,
    -- A person has changed it since it was imported: a refresh keeps that text.
    add column is_edited boolean not null default false,
    add column version bigint not null default nextval('knowledge_versions'),
    add constraint ck_knowledge__kind check (kind in ('answer', 'passage')),
    add constraint ck_knowledge__url check (length(url) <= 2000),
    add constraint fk_knowledge__tenant_id_source_id__knowledge_sources
        foreign key (tenant_id, source_id)
        references knowledge_sources (tenant_id, id) on delete cascade,
    add constraint ck_knowledge__imported_as check ((imported_as is null) = (source_id is null));
create index ix_knowledge__version on knowledge (tenant_id, version);
create index ix_knowledge__source_id on knowledge (tenant_id, source_id)
    where source_id is not null;

create table knowledge_vectors (
    tenant_id  uuid    not null,
    entry_id   uuid    not null,
    model      text    not null,
    -- That of the entry when its vectors were made.
    version    bigint  not null,
    -- Of the same sequence as versions, taken under the same lock: what is read in its order is
    -- complete.
    number     bigint  not null,
    -- Arrays of float16.
    vectors    bytea[] not null,
    -- Since when a worker makes them.
    claimed_at timestamptz,
    constraint pk_knowledge_vectors primary key (tenant_id, entry_id),
    constraint fk_knowledge_vectors__tenant_id_entry_id__knowledge
        foreign key (tenant_id, entry_id)
        references knowledge (tenant_id, id) on delete cascade
);
create index ix_knowledge_vectors__number on knowledge_vectors (tenant_id, number);

create table unanswered (
    tenant_id       uuid        not null,
    conversation_id uuid        not null,
    -- That of the visitor's message.
    seq             integer     not null,
    reason          text        not null,
    -- The topics that were offered or sent in vain.
    entries         uuid[]      not null default '{}',
    created_at      timestamptz not null default now(),
    -- When somebody has dealt with it, and how.
    resolved_at     timestamptz,
    resolution      text,
    constraint pk_unanswered primary key (tenant_id, conversation_id, seq),
    constraint fk_unanswered__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_unanswered__reason check (reason in ('fallback', 'none_of_these', 'thumbs_down')),
    constraint ck_unanswered__resolution check (
        resolution in ('answer', 'wording', 'dismissed')
        and (resolution is null) = (resolved_at is null))
);
create index ix_unanswered__open on unanswered (tenant_id, created_at)
    where resolved_at is null;

create table ratings (
    tenant_id       uuid        not null,
    conversation_id uuid        not null,
    message_id      uuid        not null,
    rating          text        not null,
    comment         text        not null default '',
    created_at      timestamptz not null default now(),
    updated_at      timestamptz not null default now(),
    constraint pk_ratings primary key (tenant_id, message_id),
    constraint fk_ratings__tenant_id_conversation_id__conversations
        foreign key (tenant_id, conversation_id)
        references conversations (tenant_id, id) on delete cascade,
    constraint ck_ratings__rating check (rating in ('up', 'down')),
    constraint ck_ratings__comment check (length(comment) <= 1000)
);
create index ix_ratings__conversation_id on ratings (tenant_id, conversation_id);

-- contact has email, name and phone, as far as the visitor gave them.
alter table conversations
    add column person_wanted_at timestamptz,
    add column contact jsonb not null default '{}';
create index ix_conversations__person_wanted_at on conversations (tenant_id, person_wanted_at)
    where person_wanted_at is not null;

-- By language; fallback_text is for the others.
alter table tenants
    add column fallback_texts jsonb not null default '{}';

drop function knowledge_subject(text, text[]);
"""

ISOLATED = ("knowledge_sources", "knowledge_vectors", "unanswered", "ratings")

RIGHTS = """
grant select on knowledge_sources, knowledge_vectors to hlas_app;
grant select, insert, update, delete on knowledge_sources to hlas_tenant_admin;
grant select on knowledge_vectors, ratings to hlas_tenant_admin;
grant select on unanswered, ratings to hlas_app;
grant insert (tenant_id, conversation_id, seq, reason, entries) on unanswered to hlas_app;
grant update (reason, entries), delete on unanswered to hlas_app;
grant insert (tenant_id, conversation_id, message_id, rating, comment) on ratings to hlas_app;
grant update (rating, comment, updated_at) on ratings to hlas_app;
grant update (person_wanted_at, contact) on conversations to hlas_app;
grant select on unanswered to hlas_tenant_admin;
grant update (resolved_at, resolution) on unanswered to hlas_tenant_admin;
grant update (fallback_texts) on tenants to hlas_tenant_admin;
grant usage on sequence knowledge_versions to hlas_operator, hlas_tenant_admin;
"""

DERIVED = """
create function knowledge_subject(p_question text, p_keywords text[]) returns text
language sql immutable parallel safe
return p_question || ' ' || array_to_string(p_keywords, ' ');
alter table knowledge
    drop column kind,
    drop column wordings,
    drop column url,
    drop column source_id,
    drop column imported_as,
    drop column is_edited,
    drop column version,
    add column subject text not null
        generated always as (knowledge_fold(knowledge_subject(question, keywords))) stored,
    add column words tsvector not null generated always as (
        setweight(knowledge_lexemes(language, knowledge_subject(question, keywords)), 'A')
        || setweight(knowledge_lexemes(language, answer), 'B')) stored;
"""


def upgrade() -> None:
    execute_all(TABLES)
    for table in ISOLATED:
        isolate(table)
    execute_all(RIGHTS)


def downgrade() -> None:
    op.execute("drop table ratings, unanswered, knowledge_vectors")
    # Passages are no questions with answers.
    op.execute("delete from knowledge where kind = 'passage'")
    execute_all(DERIVED)
    op.execute("drop table knowledge_sources")
    op.execute("drop sequence knowledge_versions")
    op.execute("alter table conversations drop column person_wanted_at, drop column contact")
    op.execute("alter table tenants drop column fallback_texts")
