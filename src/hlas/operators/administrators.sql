-- name: add_key
with added as (
    insert into administrators (tenant_id, id, name, role, prefix, key_hash)
    values ($1, $2, $3, $4, $5, $6)
    returning *
)
select a.*, t.slug
from added a
left join tenants t on t.id = a.tenant_id

-- name: list_keys
select a.*, t.slug
from administrators a
left join tenants t on t.id = a.tenant_id
order by a.id

-- name: keys_by_prefix
-- Almost always one row. A tenant's key is no longer valid once the tenant is removed.
select a.*, t.slug, a.last_used_at is null or a.last_used_at < now() - interval '1 minute' as rested
from administrators a
left join tenants t on t.id = a.tenant_id
where a.prefix = $1 and a.revoked_at is null and (a.role = 'operator' or t.id is not null)

-- name: key_by_id
select a.*, t.slug
from administrators a
left join tenants t on t.id = a.tenant_id
where a.id = $1 and a.revoked_at is null and (a.role = 'operator' or t.id is not null)

-- name: note_use
-- At most once a minute, so that a key in constant use is not written at every request.
update administrators
set last_used_at = now()
where tenant_id = $1 and id = $2
  and (last_used_at is null or last_used_at < now() - interval '1 minute')

-- name: revoke_key
update administrators set revoked_at = now()
where prefix = $1 and revoked_at is null
returning tenant_id, name, role
