"""Tenants' questions and answers, and the functions that make their words comparable."""

import sqlalchemy
from alembic import op

from hlas.settings import ConfigurationError
from hlas.store.migrations.isolation import execute_all, isolate

revision = "0004"
down_revision = "0003"

EXTENSIONS = ("pg_trgm", "unaccent")

# SQL-standard bodies are parsed once, at creation. They work with any search_path of a caller or a
# restore, and with extensions in any schema.
FUNCTIONS = """
create function knowledge_fold(p_text text) returns text
language sql immutable strict parallel safe
return lower({unaccent}.unaccent('{unaccent}.unaccent'::regdictionary, p_text));

create function knowledge_likeness(p_word text, p_text text) returns real
language sql immutable strict parallel safe
return {pg_trgm}.strict_word_similarity(p_word, p_text);

create function knowledge_overlap(p_one text, p_other text) returns real
language sql immutable strict parallel safe
return {pg_trgm}.similarity(p_one, p_other);

create function knowledge_stem(p_folded text) returns text
language sql immutable strict parallel safe
return regexp_replace(p_folded,
    '(\\w{{3,}}?)(ujete|ujeme|uji|uje|uju|ami|emi|imi|ymi|ech|ich|ych|ach|eho|emu|iho|imu|ovi|ove'
    '|ete|eme|ite|ime|um|am|em|im|ym|ou|[aeiouy])\\M', '\\1', 'g');

create function knowledge_lexemes(p_language text, p_text text) returns tsvector
language sql immutable parallel safe
return case p_language
    when 'en' then to_tsvector('pg_catalog.english'::regconfig, knowledge_fold(p_text))
    when 'cs' then
        to_tsvector('pg_catalog.simple'::regconfig, knowledge_stem(knowledge_fold(p_text)))
    else to_tsvector('pg_catalog.english'::regconfig, knowledge_fold(p_text))
        || to_tsvector('pg_catalog.simple'::regconfig, knowledge_stem(knowledge_fold(p_text)))
end;

create function knowledge_subject(p_question text, p_keywords text[]) returns text
language sql immutable parallel safe
return p_question || ' ' || array_to_string(p_keywords, ' ');
"""

# subject and words are derived, so an entry cannot be changed and still be found by its old text.
TABLE = """
create table knowledge (
    tenant_id  uuid        not null,
    id         uuid        not null,
    position   integer     not null,
    question   text        not null,
    answer     text        not null,
    keywords   text[]      not null default '{}',
    language   text,
    subject    text        not null
        generated always as (knowledge_fold(knowledge_subject(question, keywords))) stored,
    words      tsvector    not null generated always as (
        setweight(knowledge_lexemes(language, knowledge_subject(question, keywords)), 'A')
        || setweight(knowledge_lexemes(language, answer), 'B')) stored,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint pk_knowledge primary key (tenant_id, id),
    constraint uq_knowledge__tenant_id_question unique (tenant_id, question),
    constraint fk_knowledge__tenant_id__tenants
        foreign key (tenant_id) references tenants (id) on delete cascade,
    constraint ck_knowledge__question check (length(question) between 1 and 500),
    constraint ck_knowledge__answer check (length(answer) between 1 and 8000),
    constraint ck_knowledge__language check (language in ('cs', 'en'))
);
"""


def _schema_of(extension: str) -> str:
    """Create the extension if it is missing, and return its schema, quoted."""
    connection = op.get_bind()
    try:
        connection.exec_driver_sql(f"create extension if not exists {extension}")
    except sqlalchemy.exc.DBAPIError as error:
        raise ConfigurationError(
            f"DATABASE_URL: its user may not create the extension {extension}; "
            f"let an administrator run this in the database once: create extension {extension};"
        ) from error
    found = connection.exec_driver_sql(
        "select quote_ident(n.nspname) from pg_extension e "
        f"join pg_namespace n on n.oid = e.extnamespace where e.extname = '{extension}'"
    )
    return str(found.scalar_one())


def upgrade() -> None:
    schemas = {extension: _schema_of(extension) for extension in EXTENSIONS}
    execute_all(FUNCTIONS.format(**schemas))
    execute_all(TABLE)
    isolate("knowledge")
    op.execute("grant select on knowledge to hlas_app")


def downgrade() -> None:
    # The extensions stay: others may use them, and an administrator may have made them.
    op.execute("drop table knowledge")
    op.execute("drop function knowledge_subject(text, text[])")
    op.execute("drop function knowledge_lexemes(text, text)")
    op.execute("drop function knowledge_stem(text)")
    op.execute("drop function knowledge_overlap(text, text)")
    op.execute("drop function knowledge_likeness(text, text)")
    op.execute("drop function knowledge_fold(text)")
