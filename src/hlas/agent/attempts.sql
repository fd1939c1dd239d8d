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

-- name: add_confirmation
insert into confirmations (tenant_id, id, conversation_id, tool, arguments)
values ($1, $2, $3, $4, $5)

-- name: decide_confirmation
-- Once, and within an hour: nobody remembers what an old question was about.
update confirmations set state = $4
where tenant_id = $1 and id = $2 and conversation_id = $3 and state = 'asked'
  and created_at > now() - interval '1 h'
returning tool, arguments
