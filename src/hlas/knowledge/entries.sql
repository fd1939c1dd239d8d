-- name: lock_knowledge
-- Until the end of the transaction: the next change of this tenant's knowledge waits.
select pg_advisory_xact_lock(hashtextextended('knowledge ' || $1, 0))

-- name: last_position
select coalesce(max(position), 0) from knowledge where tenant_id = $1

-- name: save_entries
-- An entry is identified by its question: saved again it keeps its id, unchanged it is not written.
-- Another answer than that of its source is a person's text from then on.
insert into knowledge as k (
    tenant_id, id, position, question, answer, keywords, language, kind, wordings, url)
select $1, e.id, e.position, e.question, e.answer, e.keywords, e.language, e.kind, e.wordings,
       e.url
from jsonb_to_recordset($2) as e (
    id uuid, position integer, question text, answer text, keywords text[], language text,
    kind text, wordings text[], url text)
on conflict (tenant_id, question) do update
set position = case when $3 then excluded.position else k.position end,
    answer = excluded.answer,
    keywords = excluded.keywords,
    language = excluded.language,
    kind = excluded.kind,
    wordings = excluded.wordings,
    url = excluded.url,
    is_edited = k.is_edited or (k.source_id is not null and k.answer <> excluded.answer),
    version = nextval('knowledge_versions'),
    updated_at = now()
where (k.answer, k.keywords, k.kind, k.wordings, k.url)
      is distinct from (excluded.answer, excluded.keywords, excluded.kind, excluded.wordings,
                        excluded.url)
   or k.language is distinct from excluded.language
   or ($3 and k.position <> excluded.position)
returning k.created_at = k.updated_at as added

-- name: remove_others
delete from knowledge where tenant_id = $1 and question <> all ($2::text[])

-- name: measure_entries
select count(*) as entries,
       coalesce(sum(length(question) + length(answer) + length(array_to_string(keywords, ' '))
                    + length(array_to_string(wordings, ' '))), 0)::bigint as characters
from knowledge
where tenant_id = $1

-- name: list_entries
select id, question, answer, keywords, language, kind, wordings, url, source_id, imported_as,
       is_edited, created_at, updated_at
from knowledge
where tenant_id = $1
order by position, id

-- name: remove_entries
-- A refresh of their sources must not bring them back.
with removed as (
    delete from knowledge
    where tenant_id = $1 and id = any ($2::uuid[])
    returning id, question, source_id, imported_as
), left_out as (
    update knowledge_sources s
    set left_out = s.left_out || r.questions
    from (
        select source_id, array_agg(imported_as) as questions
        from removed
        where source_id is not null
        group by source_id
    ) as r
    where s.tenant_id = $1 and s.id = r.source_id
)
select id, question from removed

-- name: page_of_entries
-- With search, those that contain all of its words, in any case and with or without accents.
select k.id, k.question, k.answer, k.keywords, k.language, k.kind, k.wordings, k.url, k.source_id,
       k.imported_as, k.is_edited, k.created_at, k.updated_at
from knowledge k
-- offset 0: the text is folded once for an entry, not once for a word.
cross join lateral (
    select case when $4 <> '' then
        knowledge_fold(concat_ws(' ', k.question, k.answer, array_to_string(k.keywords, ' '),
                                 array_to_string(k.wordings, ' '), k.url))
    end as words
    offset 0
) as folded
where k.tenant_id = $1
  and ($2::uuid is null or k.id > $2)
  and ($5::text is null or k.kind = $5)
  and ($6::uuid is null or k.source_id = $6)
  and not exists (
      select from regexp_split_to_table(knowledge_fold($4), '\s+') as word
      where strpos(folded.words, word) = 0)
order by k.id
limit $3

-- name: count_entries
select kind, count(*)::integer as entries
from knowledge
where tenant_id = $1
group by kind

-- name: entry_by_id
select id, question, answer, keywords, language, kind, wordings, url, source_id, imported_as,
       is_edited, created_at, updated_at
from knowledge
where tenant_id = $1 and id = $2

-- name: add_entry
insert into knowledge (
    tenant_id, id, position, question, answer, keywords, language, kind, wordings, url)
select $1, $2, coalesce(max(position), 0) + 1, $3, $4, $5, $6, $7, $8, $9
from knowledge
where tenant_id = $1
returning id, question, answer, keywords, language, kind, wordings, url, source_id, imported_as,
          is_edited, created_at, updated_at

-- name: update_entry
update knowledge
set question = $3, answer = $4, keywords = $5, language = $6, kind = $7, wordings = $8, url = $9,
    is_edited = is_edited
        or (source_id is not null and (question, answer) is distinct from ($3, $4)),
    version = nextval('knowledge_versions'), updated_at = now()
where tenant_id = $1 and id = $2
returning id, question, answer, keywords, language, kind, wordings, url, source_id, imported_as,
          is_edited, created_at, updated_at
