-- Stores the response of a keyed request that wrote no message of its own, unless the key has one.
-- Returns what is stored then, and whether it was stored now.
create function store_response(
    p_tenant uuid, p_conversation uuid, p_key text, p_hash bytea, p_response json
)
returns table (request_hash bytea, response json, is_new boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
#variable_conflict use_column
declare
    stored boolean;
begin
    -- The writer locks it too: nobody else claims the key meanwhile, which would fail a whole batch.
    perform from conversations
    where tenant_id = p_tenant and id = p_conversation
    for no key update;
    insert into idempotency_keys (tenant_id, conversation_id, key, request_hash, response)
    values (p_tenant, p_conversation, p_key, p_hash, p_response)
    on conflict do nothing;
    stored := found;
    return query
    select k.request_hash, k.response, stored
    from idempotency_keys k
    where k.tenant_id = p_tenant and k.conversation_id = p_conversation and k.key = p_key;
end
$$
