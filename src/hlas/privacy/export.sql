-- name: export_conversations
-- A page by id: no transaction stays open while a slow disk or network takes the output.
select id, status, visitor_id, is_verified, origin, meta, last_seq, last_message_at, created_at
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id > $3)
order by id
limit $4

-- name: export_messages
-- All messages of several short conversations, or a page of a long one.
select id, conversation_id, seq, role, content, meta, created_at
from messages
where tenant_id = $1 and conversation_id = any ($2) and seq > $3
order by conversation_id, seq
limit $4
