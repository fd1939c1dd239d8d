-- name: export_conversations
-- A page by id: no transaction stays open while a slow disk or network takes the output.
select id, status, visitor_id, is_verified, origin, meta, last_seq, last_message_at, created_at,
       person_wanted_at, contact
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id > $3)
order by id
limit $4

-- name: export_messages
-- All messages of several short conversations, or a page of a long one.
select m.id, m.conversation_id, m.seq, m.role, m.content, m.meta, m.created_at, r.rating, r.comment,
       r.updated_at as rated_at
from messages m
left join ratings r on r.tenant_id = $1 and r.message_id = m.id
where m.tenant_id = $1 and m.conversation_id = any ($2) and m.seq > $3
order by m.conversation_id, m.seq
limit $4
