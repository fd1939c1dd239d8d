-- name: read_reply
-- One round trip: the tenant scope, whether the session is still valid, the key's stored response,
-- a visitor's message ($4, or the last one), and its answer. JSON as text, so that a replay is
-- byte-identical.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, c.status, c.handler, k.request_hash, k.response,
       q.seq as asked, q.message as user_message, a.id::text as message_id, a.content, a.meta,
       a.message as assistant_message, r.state, r.id::text as run_id, r.trace
from scope s
left join lateral (
    select is_active, token_generation from tenants where id = s.tenant_id offset 0
) as t on true
left join lateral (
    select status, handler from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true
left join lateral (
    select request_hash, response::text as response
    from idempotency_keys
    where tenant_id = s.tenant_id and conversation_id = $2 and key = $3
    offset 0
) as k on true
left join lateral (
    select seq, json_build_object(
               'id', id, 'seq', seq, 'role', role, 'content', content, 'metadata', meta,
               'created_at', created_at)::text as message
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and role = 'user'
      and ($4::uuid is null or id = $4)
    order by seq desc
    limit 1
) as q on true
left join lateral (
    select id, content, meta, json_build_object(
               'id', id, 'seq', seq, 'role', role, 'content', content, 'metadata', meta,
               'created_at', created_at)::text as message
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and role = 'assistant' and seq > q.seq
      -- A visitor's metadata may be anything, and conditions are evaluated in any order.
      and case when role = 'assistant' then (meta ->> 'reply_to')::integer end >= q.seq
    order by seq
    limit 1
) as a on true
left join lateral (
    select id, state, trace
    from runs
    where tenant_id = s.tenant_id and conversation_id = $2 and reply_to >= q.seq
      and state <> 'cancelled'
    order by reply_to
    limit 1
) as r on true

-- name: may_debug
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select a.is_debug
from scope s
left join lateral (
    select is_debug from agent_settings where tenant_id = s.tenant_id offset 0
) as a on true

-- name: store_response
select request_hash, response::text as response, is_new
from store_response($1, $2, $3, $4, $5)
