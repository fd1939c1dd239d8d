-- name: find_answer
-- Whether the session is still valid, and the visitor's message that an answer in it is for, if the
-- assistant gave it.
select t.is_active, t.token_generation, c.status, m.role,
       case m.role when 'assistant' then (m.meta ->> 'reply_to')::integer end as asked,
       m.meta -> 'entries' as entries
from tenants t
left join conversations c on c.tenant_id = t.id and c.id = $2
left join messages m on m.tenant_id = t.id and m.conversation_id = $2 and m.id = $3
    and m.role in ('assistant', 'operator')
where t.id = $1

-- name: rate
insert into ratings as r (tenant_id, conversation_id, message_id, rating, comment)
values ($1, $2, $3, $4, $5)
on conflict (tenant_id, message_id) do update
set rating = excluded.rating, comment = excluded.comment, updated_at = now()
where (r.rating, r.comment) <> (excluded.rating, excluded.comment)
