-- name: vectors_state
-- The last change of the tenant's entries or their vectors, and how many entries there are.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select greatest(
           coalesce(max(k.version), 0),
           coalesce((select max(v.number) from knowledge_vectors v
                     where v.tenant_id = (select tenant_id from scope)), 0)) as cursor,
       count(k.id)::integer as entries
from scope s
left join knowledge k on k.tenant_id = s.tenant_id

-- name: changed_vectors
-- What changed after a cursor, oldest change first, a page at a time. Stale vectors are left out.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
), changed as (
    select k.id from scope s join knowledge k on k.tenant_id = s.tenant_id and k.version > $2
    union
    select v.entry_id
    from scope s
    join knowledge_vectors v on v.tenant_id = s.tenant_id and v.number > $2
)
select k.id,
       greatest(k.version, coalesce(v.number, 0)) as cursor,
       case when v.model = $4 and v.version = k.version then v.vectors else '{}' end as vectors
from scope s
cross join changed c
join knowledge k on k.tenant_id = s.tenant_id and k.id = c.id
left join knowledge_vectors v on v.tenant_id = s.tenant_id and v.entry_id = c.id
order by cursor
limit $3

-- name: entry_ids
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select k.id
from scope s
join knowledge k on k.tenant_id = s.tenant_id
