-- name: add_confirmation
insert into confirmations (tenant_id, id, conversation_id, tool, arguments)
values ($1, $2, $3, $4, $5)

-- name: decide_confirmation
-- Once, and within an hour: nobody remembers what an old question was about.
update confirmations set state = $4
where tenant_id = $1 and id = $2 and conversation_id = $3 and state = 'asked'
  and created_at > now() - interval '1 h'
returning tool, arguments

-- name: record_result
update confirmations set result = $3 where tenant_id = $1 and id = $2

-- name: read_confirmation
select state, result
from confirmations
where tenant_id = $1 and id = $2 and conversation_id = $3
