-- name: read_turns
-- The last messages up to the visitor's, oldest first.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select m.role, m.content
from scope s
cross join lateral (
    select seq, role, content
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and seq <= $3
      and role in ('user', 'assistant', 'operator')
    order by seq desc
    limit $4
) as m
order by m.seq

-- name: last_answer
-- Whether the model wrote what the visitor read last, before the messages that have no answer yet.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select m.role = 'assistant' and m.meta ->> 'source' = 'agent' as is_models
from scope s
cross join lateral (
    select role, meta
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and seq < $3
      and role in ('assistant', 'operator')
    order by seq desc
    limit 1
) as m
