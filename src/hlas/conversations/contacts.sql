-- name: read_wish
-- Whether the session is still valid, what is known of the visitor's wish for a person, and the
-- visitor's message that the assistant's message $3 answers, with what it offered.
select t.is_active, t.token_generation, c.status, c.handler, c.contact,
       (m.meta ->> 'reply_to')::integer as asked, m.meta -> 'entries' as entries
from tenants t
left join conversations c on c.tenant_id = t.id and c.id = $2
left join messages m on m.tenant_id = t.id and m.conversation_id = $2 and m.id = $3
    and m.role = 'assistant'
where t.id = $1

-- name: want_person
update conversations set person_wanted_at = now()
where tenant_id = $1 and id = $2 and status = 'open' and person_wanted_at is null

-- name: keep_contact
update conversations set contact = $3
where tenant_id = $1 and id = $2 and status = 'open' and contact <> $3
