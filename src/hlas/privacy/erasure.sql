-- name: close_conversations
-- First of all, so that no message is added to a conversation that is being erased.
update conversations set status = 'closed'
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
  and status = 'open'

-- name: next_to_erase
-- The writer never waits for a conversation, so this cannot deadlock with it.
select tenant_id, id, last_seq
from conversations
where tenant_id = $1
  and ($2::text is null or visitor_id = $2)
  and ($3::uuid is null or id = $3)
order by id
limit $4
for update

-- name: remove_conversations
-- Their messages, ratings and idempotency keys, whose responses contain the assistant's text,
-- cascade. Open streams end.
with frames as (
    delete from run_frames f
    using unnest($1::uuid[], $2::uuid[]) as d (tenant_id, id), runs r
    where r.tenant_id = d.tenant_id and r.conversation_id = d.id
      and f.tenant_id = r.tenant_id and f.run_id = r.id
),
removed as (
    delete from conversations c
    using unnest($1::uuid[], $2::uuid[]) as d (tenant_id, id)
    where c.tenant_id = d.tenant_id and c.id = d.id
    returning c.tenant_id, c.id
)
insert into changes (tenant_id, conversation_id) select tenant_id, id from removed

-- name: shorten_conversation
-- From the end, so that concurrent readers see a shorter conversation without gaps.
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
-- The visitor's id and contact, the page's metadata about them, what they were asked to confirm and
-- what they wrote about answers; the messages' text and the thumbs are kept.
with asked as (delete from confirmations where tenant_id = $1 and conversation_id = $2),
thumbs as (
    update ratings set comment = ''
    where tenant_id = $1 and conversation_id = $2 and comment <> ''
)
update conversations set visitor_id = null, is_verified = false, meta = '{}', contact = '{}'
where tenant_id = $1 and id = $2

-- name: forget_metadata
-- The page's metadata of visitors' messages, and the arguments that they confirmed; the rest of an
-- assistant's metadata says how it answered.
update messages set meta = case role when 'user' then '{}' else meta - 'confirmation' end
where tenant_id = $1 and conversation_id = $2 and seq > $3 and seq <= $4
  and (role = 'user' and meta <> '{}' or role = 'assistant' and meta ? 'confirmation')
