-- name: find_conversation
-- Any conversation will do: the doctor asks for what comes after its last message.
select c.tenant_id::text as tenant_id, c.id::text as id, c.origin, c.last_seq, t.token_generation
from tenants t
cross join lateral (
    select tenant_id, id, origin, last_seq from conversations where tenant_id = t.id limit 1
) as c
where t.is_active
limit 1
