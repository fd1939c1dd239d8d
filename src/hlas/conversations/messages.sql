-- name: history
-- One round trip: sets the tenant, checks that the session is still valid, reads a page as JSON.
-- seq has no gaps, so an offset is a seq too, and every page of a conversation costs the same.
-- A page has at most $5 bytes, but at least one message.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, c.status, c.last_seq as newest, p.messages, p.last_seq
from scope s
left join lateral (
    select is_active, token_generation from tenants where id = s.tenant_id offset 0
) as t on true
left join lateral (
    select status, last_seq from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true
left join lateral (
    select json_agg(page)::text as messages, max(page.seq) as last_seq
    from (
        select id, seq, role, content, metadata, created_at
        from (
            select id, seq, role, content, meta as metadata, created_at,
                   sum(octet_length(content) + octet_length(meta::text)) over (order by seq) as bytes
            from messages
            where tenant_id = s.tenant_id and conversation_id = $2 and seq > $3
            order by seq
            limit $4
        ) as following
        where bytes <= $5 or seq = $3 + 1
        order by seq
    ) as page
) as p on true

-- name: reap_keys
-- A small batch, oldest first, by the database's clock. The lock admits one worker at a time. A
-- request that reads its key before this commits is a replay; one that reads it later is new.
with turn as materialized (
    select pg_try_advisory_xact_lock(hashtextextended('hlas.reap_keys', 0)) as mine
),
old as materialized (
    select k.tenant_id, k.conversation_id, k.key
    from turn, idempotency_keys k
    where turn.mine and k.created_at < now() - make_interval(hours => $1)
    order by k.created_at
    limit $2
    for update of k skip locked
)
delete from idempotency_keys k
using old
where k.tenant_id = old.tenant_id and k.conversation_id = old.conversation_id and k.key = old.key
