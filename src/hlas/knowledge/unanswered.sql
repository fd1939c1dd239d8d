-- name: record_question
-- Only a visitor's message can be one. The strongest reason is kept, and the last topics that were
-- offered or sent. `offset 0` keeps the planner from reading messages before the scope is set.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
insert into unanswered as u (tenant_id, conversation_id, seq, reason, entries)
select s.tenant_id, m.conversation_id, m.seq, $4, $5
from scope s
cross join lateral (
    select conversation_id, seq
    from messages
    where tenant_id = s.tenant_id and conversation_id = $2 and seq = $3 and role = 'user'
    offset 0
) as m
on conflict (tenant_id, conversation_id, seq) do update
set reason = case
        when array_position(array['fallback', 'none_of_these', 'thumbs_down'], excluded.reason)
           > array_position(array['fallback', 'none_of_these', 'thumbs_down'], u.reason)
        then excluded.reason
        else u.reason
    end,
    entries = case when excluded.entries = '{}' then u.entries else excluded.entries end

-- name: take_back
-- What met the fallback stays unanswered, whatever the visitor thinks of that sentence.
with fallback as (
    select
    from messages
    where tenant_id = $1 and conversation_id = $2 and seq > $3 and role = 'assistant'
      and meta -> 'reply_to' = to_jsonb($3::integer) and meta ->> 'source' = 'fallback'
),
kept as (
    update unanswered set reason = 'fallback'
    where tenant_id = $1 and conversation_id = $2 and seq = $3 and reason = $4
      and exists (select from fallback)
)
delete from unanswered
where tenant_id = $1 and conversation_id = $2 and seq = $3 and reason = $4
  and not exists (select from fallback)
