-- name: add_conversation
-- Of any tenant. Nobody answers in it.
with tenant as (
    select id, token_generation from tenants where is_active limit 1
),
added as (
    insert into conversations (tenant_id, id, origin, handler)
    select id, gen_random_uuid(), $1, 'human' from tenant
    returning tenant_id, id
)
select added.tenant_id::text as tenant_id, added.id::text as id, tenant.token_generation
from added
cross join tenant

-- name: remove_conversation
delete from conversations where tenant_id = $1 and id = $2
