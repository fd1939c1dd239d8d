-- name: knowledge_state
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select coalesce(max(k.version), 0)::bigint as version, count(k.id)::integer as entries
from scope s
left join knowledge k on k.tenant_id = s.tenant_id

-- name: changed_entries
-- What has changed since a version, oldest change first, a page at a time.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select k.id, k.question, k.answer, k.keywords, k.language, k.kind, k.wordings, k.url, k.version
from scope s
cross join lateral (
    select *
    from knowledge
    where tenant_id = s.tenant_id and version > $2
    order by version
    limit $3
) as k
order by k.version

-- name: entry_ids
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select k.id
from scope s
join knowledge k on k.tenant_id = s.tenant_id
