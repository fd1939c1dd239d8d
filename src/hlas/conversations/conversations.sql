-- name: find_conversations
-- Newest first. One query examines at most $7 conversations: a search for a rare text takes many
-- short requests instead of a long one. There is no text index on messages, because every insert
-- would pay for it: a conversation's messages are read by their primary key, and `limit 1` keeps
-- the planner from scanning all messages instead.
with examined as materialized (
    select id, status, handler, visitor_id, is_verified, origin, last_seq, last_message_at, created_at,
           person_wanted_at
    from conversations
    where tenant_id = $1 and id >= $2 and id < $3
      and ($4::text is null or status = $4)
      and ($5::text is null or visitor_id = $5)
    order by id desc
    limit $7
),
found as (
    select l.*
    from examined l
    left join lateral (
        select true as there
        from messages m
        where $6::text is not null and m.tenant_id = $1 and m.conversation_id = l.id
          and strpos(knowledge_fold(m.content), knowledge_fold($6)) > 0
        limit 1
    ) as text on true
    where ($6::text is null or text.there) and ($9::bool or l.last_seq > 0)
    order by l.id desc
    limit $8
)
select f.*, m.role as last_role, left(m.content, 160) as last_text, seen.examined, seen.last_id
from (
    select count(*) as examined, (array_agg(id order by id))[1] as last_id from examined
) as seen
left join found f on true
left join lateral (
    select role, content
    from messages
    where tenant_id = $1 and conversation_id = f.id and seq = f.last_seq
    limit 1
) as m on true
order by f.id desc

-- name: last_words
select c.id as conversation_id, m.text
from unnest($2::uuid[]) as c (id)
cross join lateral (
    select left(content, 160) as text
    from messages
    where tenant_id = $1 and conversation_id = c.id and role = 'user'
    order by seq desc
    limit 1
) as m

-- name: conversation_by_id
select id, status, handler, visitor_id, is_verified, origin, meta, last_seq, last_message_at,
       created_at, person_wanted_at, contact
from conversations
where tenant_id = $1 and id = $2

-- name: messages_of
select m.id, m.seq, m.role, m.content, m.meta, m.created_at, r.rating, r.comment,
       r.updated_at as rated_at
from messages m
left join ratings r on r.tenant_id = $1 and r.message_id = m.id
where m.tenant_id = $1 and m.conversation_id = $2 and m.seq > $3
order by m.seq
limit $4

-- name: close_conversation
-- The writer locks the row: a concurrent message is stored before, or finds it closed.
update conversations set status = 'closed'
where tenant_id = $1 and id = $2 and status = 'open'

-- name: lock_conversation
-- The writer skips conversations that are locked and tries them again.
select handler from conversations where tenant_id = $1 and id = $2 for no key update

-- name: set_handler
update conversations set handler = $3, handler_epoch = handler_epoch + 1
where tenant_id = $1 and id = $2
