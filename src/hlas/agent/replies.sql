-- name: read_question
-- One round trip before the agent: the tenant scope, whether the session is still valid, the key's
-- stored response, and the visitor's last message. response as text, so that a replay is byte-identical.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, t.fallback_text, t.language, c.status,
       k.request_hash, k.response, m.seq, m.content
from scope s
left join lateral (
    select is_active, token_generation, fallback_text, ui_config ->> 'language' as language
    from tenants
    where id = s.tenant_id
    offset 0
) as t on true
left join lateral (
    select status from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true
left join lateral (
    select request_hash, response::text as response
    from idempotency_keys
    where tenant_id = s.tenant_id and conversation_id = $2 and key = $3
    offset 0
) as k on true
left join lateral (
    select seq, content
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and role = 'user'
    order by seq desc
    limit 1
) as m on true
