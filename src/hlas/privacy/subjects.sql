-- name: count_data
-- seq has no gaps, so the last one is the number of messages.
select count(*) as conversations, coalesce(sum(last_seq), 0)::bigint as messages
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
