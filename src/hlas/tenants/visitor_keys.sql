-- name: list_keys
-- Without the material: a secret is shown once, when it is added.
select kid, algorithm, created_at
from visitor_keys
where tenant_id = $1
order by created_at, kid

-- name: lock_tenant
-- Serialises changes of a tenant's keys, so that their number stays within the limit.
select id from tenants where id = $1 for no key update

-- name: add_key
-- A key that exists already is left unchanged.
insert into visitor_keys (tenant_id, kid, algorithm, material)
values ($1, $2, $3, $4)
on conflict do nothing

-- name: remove_key
delete from visitor_keys
where tenant_id = $1 and kid = $2
returning algorithm
