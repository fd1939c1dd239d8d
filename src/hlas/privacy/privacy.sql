-- name: size
-- What there is to export or erase; seq has no gaps, so the last one is the number of messages.
select count(*) as conversations, coalesce(sum(last_seq), 0)::bigint as messages
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)

-- name: export_conversations
-- A page by id: no transaction stays open while somebody's disk or network takes its time.
select id, status, visitor_id, is_verified, origin, meta, last_seq, last_message_at, created_at
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id > $3)
order by id
limit $4

-- name: export_messages
-- Of several short conversations at once, or a page of a long one.
select id, conversation_id, seq, role, content, meta, created_at
from messages
where tenant_id = $1 and conversation_id = any ($2) and seq > $3
order by conversation_id, seq
limit $4

-- name: close_conversations
-- Before anything goes: nobody adds to what is being erased.
update conversations set status = 'closed'
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
  and status = 'open'

-- name: next_to_erase
-- The writer never waits while it holds a row, so waiting for it here cannot deadlock.
select tenant_id, id, last_seq
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
order by id
limit $4
for update

-- name: remove_conversations
-- Messages and idempotency keys, whose responses hold the assistant's words, go with them.
delete from conversations c
using unnest($1::uuid[], $2::uuid[]) as d (tenant_id, id)
where c.tenant_id = d.tenant_id and c.id = d.id

-- name: shorten_conversation
-- From the end: whoever reads meanwhile finds a shorter conversation, without gaps.
with keys as (
    delete from idempotency_keys k
    using (
        select key from idempotency_keys where tenant_id = $1 and conversation_id = $2 limit $4
    ) as part
    where k.tenant_id = $1 and k.conversation_id = $2 and k.key = part.key
),
cut as (
    delete from messages
    where tenant_id = $1 and conversation_id = $2 and seq > $3 and seq <= $3 + $4
)
update conversations set status = 'closed', last_seq = $3 where tenant_id = $1 and id = $2

-- name: next_to_anonymise
select id, last_seq
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
  and ($4::uuid is null or id > $4)
order by id
limit 1
for update

-- name: forget_visitor
-- Whose it was, and what the page told about them; the words of the conversation stay.
update conversations set visitor_id = null, is_verified = false, meta = '{}'
where tenant_id = $1 and id = $2

-- name: forget_metadata
-- What a page attached to its visitor's messages; an assistant's metadata tell how it answered.
update messages set meta = '{}'
where tenant_id = $1 and conversation_id = $2 and seq > $3 and seq <= $4
  and role = 'user' and meta <> '{}'
