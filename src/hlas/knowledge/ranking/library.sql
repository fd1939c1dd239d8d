-- name: knowledge_state
-- Lateral, here and below: nothing may be read before the scope is set.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select k.version, k.entries
from scope s
cross join lateral (
    select coalesce(max(version), 0)::bigint as version, count(*)::integer as entries
    from knowledge
    where tenant_id = s.tenant_id
) as k

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
cross join lateral (select id from knowledge where tenant_id = s.tenant_id offset 0) as k
