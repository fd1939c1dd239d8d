-- name: vectors_state
-- The last change of the tenant's entries or their vectors, and how many entries there are.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select greatest(k.version, v.number) as cursor, k.entries
from scope s
cross join lateral (
    select coalesce(max(version), 0) as version, count(*)::integer as entries
    from knowledge
    where tenant_id = s.tenant_id
) as k
cross join lateral (
    select coalesce(max(number), 0) as number
    from knowledge_vectors
    where tenant_id = s.tenant_id
) as v

-- name: changed_vectors
-- What changed after a cursor, oldest change first, a page at a time. Stale vectors are left out.
-- Lateral: nothing may be read before the scope is set.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select c.id, c.cursor, c.vectors
from scope s
cross join lateral (
    select k.id,
           greatest(k.version, v.number) as cursor,
           case when v.model = $4 and v.version = k.version then v.vectors else '{}' end as vectors
    from knowledge k
    left join knowledge_vectors v on v.tenant_id = k.tenant_id and v.entry_id = k.id
    where k.tenant_id = s.tenant_id and (k.version > $2 or v.number > $2)
    order by 2
    limit $3
) as c
order by c.cursor
