-- name: list_sources
select s.id, s.kind, s.location, s.language, s.left_out, s.created_at, s.refreshed_at,
       count(k.id)::integer as entries
from knowledge_sources s
left join knowledge k on k.tenant_id = s.tenant_id and k.source_id = s.id
where s.tenant_id = $1
group by s.tenant_id, s.id
order by s.location

-- name: source_by_location
select id, left_out from knowledge_sources where tenant_id = $1 and location = $2

-- name: count_sources
select count(*)::integer from knowledge_sources where tenant_id = $1

-- name: save_source
insert into knowledge_sources (tenant_id, id, kind, location, language, left_out)
values ($1, $2, $3, $4, $5, $6)
on conflict (tenant_id, location) do update
set kind = excluded.kind,
    language = excluded.language,
    left_out = excluded.left_out,
    refreshed_at = now()

-- name: add_entries
insert into knowledge (
    tenant_id, id, position, question, answer, keywords, language, kind, wordings, url, source_id,
    imported_as)
select $1, e.id, e.position, e.question, e.answer, e.keywords, e.language, e.kind, e.wordings,
       e.url, $3, e.question
from jsonb_to_recordset($2) as e (
    id uuid, position integer, question text, answer text, keywords text[], language text,
    kind text, wordings text[], url text)

-- name: replace_entries
-- The text of the source; keywords and other wordings that people have added stay.
update knowledge k
set question = e.question,
    answer = e.answer,
    kind = e.kind,
    url = e.url,
    source_id = $3,
    imported_as = e.question,
    is_edited = false,
    version = nextval('knowledge_versions'),
    updated_at = now()
from jsonb_to_recordset($2) as e (id uuid, question text, answer text, kind text, url text)
where k.tenant_id = $1 and k.id = e.id

-- name: drop_entries
delete from knowledge where tenant_id = $1 and id = any ($2::uuid[])

-- name: keep_entries
-- Somebody has decided to keep them as they are.
update knowledge set is_edited = true where tenant_id = $1 and id = any ($2::uuid[])

-- name: release_edited
-- What a person has changed stays when its source is removed.
update knowledge
set source_id = null, imported_as = null, is_edited = false
where tenant_id = $1 and source_id = $2 and is_edited

-- name: count_imported
select count(*)::integer from knowledge where tenant_id = $1 and source_id = $2

-- name: remove_source
-- With its entries.
delete from knowledge_sources where tenant_id = $1 and id = $2 returning id
