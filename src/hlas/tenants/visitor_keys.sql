-- name: list_keys
-- Never the material: what is shared was shown once.
select kid, algorithm, created_at
from visitor_keys
where tenant_id = $1
order by created_at, kid

-- name: lock_tenant
-- One change of a tenant's keys at a time, so that their number holds.
select id from tenants where id = $1 for no key update

-- name: add_key
-- A key that is there already stays as it is.
insert into visitor_keys (tenant_id, kid, algorithm, material)
values ($1, $2, $3, $4)
on conflict do nothing

-- name: remove_key
delete from visitor_keys
where tenant_id = $1 and kid = $2
returning algorithm
