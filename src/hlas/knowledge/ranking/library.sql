-- name: knowledge_state
select coalesce(max(version), 0)::bigint as version, count(*)::integer as entries
from knowledge
where tenant_id = $1

-- name: changed_entries
-- What has changed since a version, oldest change first, a page at a time.
select id, question, answer, keywords, language, kind, wordings, url, version
from knowledge
where tenant_id = $1 and version > $2
order by version
limit $3

-- name: entry_ids
select id from knowledge where tenant_id = $1
