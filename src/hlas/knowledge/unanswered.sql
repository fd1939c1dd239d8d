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

-- name: open_questions
-- The newest ones with the visitors' words; the messages are found one by one.
select u.conversation_id, u.seq, u.reason, u.entries, u.created_at, m.text
from (
    select conversation_id, seq, reason, entries, created_at
    from unanswered
    where tenant_id = $1 and resolved_at is null
    order by created_at desc
    limit $2
) as u
cross join lateral (
    select left(content, $3) as text
    from messages
    where tenant_id = $1 and conversation_id = u.conversation_id and seq = u.seq
    limit 1
) as m
order by u.created_at desc, u.conversation_id, u.seq

-- name: count_open
select count(*) as open
from (select from unanswered where tenant_id = $1 and resolved_at is null limit $2) as u

-- name: resolve_questions
-- Those that are open; others were resolved or erased meanwhile.
update unanswered u
set resolved_at = now(), resolution = $4
from unnest($2::uuid[], $3::integer[]) as q (conversation_id, seq)
where u.tenant_id = $1 and u.conversation_id = q.conversation_id and u.seq = q.seq
  and u.resolved_at is null
