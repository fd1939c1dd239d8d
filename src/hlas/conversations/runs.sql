-- name: claim_runs
-- Runs whose owner is gone, and runs that wait although nothing is under way before them. $3 are runs
-- that this worker is answering: their leases may have ended while the database was away.
with free as materialized (
    select r.tenant_id, r.id
    from runs r
    where (r.state = 'running' and r.lease_until < now() and r.id <> all ($3::uuid[]))
       or (r.state = 'waiting' and not exists (
               select from runs o
               where o.tenant_id = r.tenant_id and o.conversation_id = r.conversation_id
                 and o.state = 'running'))
    order by r.lease_until
    limit $2
    for update of r skip locked
)
update runs r
set state = 'running', attempt = r.attempt + 1, owner = $1, lease_until = default
from free
where r.tenant_id = free.tenant_id and r.id = free.id and r.state in ('waiting', 'running')
returning r.tenant_id::text, r.id::text, r.conversation_id::text, r.first_seq, r.reply_to, r.epoch,
          r.attempt, r.asked

-- name: renew_leases
-- A run that is locked is being ended, or renewed the next time: waiting for it while holding others
-- could end in a deadlock with the writer. Returns the runs that are over: lost to another worker,
-- ended, or of a tenant that was disabled.
with held as materialized (
    select h.*
    from unnest($2::uuid[], $3::uuid[], $4::integer[]) as h (tenant_id, id, attempt)
),
free as materialized (
    select r.tenant_id, r.id
    from held h
    join runs r on r.tenant_id = h.tenant_id and r.id = h.id and r.attempt = h.attempt
    where r.owner = $1 and r.state = 'running'
    for no key update of r skip locked
),
renewed as (
    update runs r set lease_until = default
    from free
    where r.tenant_id = free.tenant_id and r.id = free.id
)
select h.id::text as id
from held h
left join runs r on r.tenant_id = h.tenant_id and r.id = h.id and r.attempt = h.attempt
    and r.owner = $1 and r.state = 'running'
left join tenants t on t.id = h.tenant_id and t.is_active
where r.id is null or t.id is null

-- name: release_runs
-- Another worker may claim them at once. A run that is locked is being ended, or its lease ends soon.
with free as materialized (
    select tenant_id, id
    from runs
    where owner = $1 and state = 'running'
    for no key update skip locked
)
update runs r set owner = null, lease_until = now() - interval '1 s'
from free
where r.tenant_id = free.tenant_id and r.id = free.id

-- name: count_attempt
update runs set asked = asked + 1
where tenant_id = $1 and id = $2 and owner = $3 and attempt = $4 and state = 'running'

-- name: end_run
-- Without a message.
update runs set state = $5
where tenant_id = $1 and id = $2 and owner = $3 and attempt = $4 and state = 'running'

-- name: read_run
-- What a run has to answer, and whether its owner should go on. At most $6 texts, the last ones, and
-- about $7 bytes: a visitor may have written for hours while nobody answered. $8 texts before these.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.fallback_text, t.fallback_texts, t.language, t.is_active, c.status, a.has_model, r.state,
       r.owner::text as owner, r.attempt, r.is_stopping, m.texts, m.metadata, b.context
from scope s
left join lateral (
    select fallback_text, fallback_texts, ui_config ->> 'language' as language, is_active
    from tenants
    where id = s.tenant_id
    offset 0
) as t on true
left join lateral (
    select status from conversations where tenant_id = s.tenant_id and id = $3 offset 0
) as c on true
left join lateral (
    select models <> '{}' as has_model from agent_settings where tenant_id = s.tenant_id offset 0
) as a on true
left join lateral (
    select state, owner, attempt, is_stopping
    from runs
    where tenant_id = s.tenant_id and id = $2
    offset 0
) as r on true
left join lateral (
    select array_agg(content order by seq) as texts,
           (array_agg(meta order by seq desc))[1] as metadata
    from (
        select seq, content, meta, sum(octet_length(content)) over (order by seq desc) as bytes
        from (
            select seq, content, meta
            from messages
            where tenant_id = s.tenant_id and conversation_id = $3 and role = 'user'
              and seq between $4 and $5
            order by seq desc
            limit $6
        ) as recent
    ) as counted
    where bytes <= $7 or seq = $5
) as m on true
left join lateral (
    select array_agg(content order by seq) as context
    from (
        select seq, content
        from messages
        where tenant_id = s.tenant_id and conversation_id = $3 and role = 'user' and seq < $4
        order by seq desc
        limit $8
    ) as answered
) as b on true

-- name: store_trace
update runs set trace = $4 where tenant_id = $1 and id = $2 and owner = $3

-- name: start_run
select start_run($1, $2)

-- name: cancel_runs
update runs set state = 'cancelled'
where tenant_id = $1 and conversation_id = $2 and state in ('waiting', 'running')

-- name: stop_run
update runs set is_stopping = true
where tenant_id = $1 and conversation_id = $2 and state = 'running'

-- name: write_frames
-- The text of all runs of a worker since the last time. A run that has ended meanwhile has no rows.
insert into run_frames (tenant_id, run_id, attempt, number, frames)
select f.*
from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::text[])
     as f (tenant_id, run_id, attempt, number, frames)
join runs r on r.tenant_id = f.tenant_id and r.id = f.run_id and r.state = 'running'
on conflict (tenant_id, run_id, attempt, number) do update set frames = excluded.frames

-- name: delete_frames
delete from run_frames f
where not exists (
    select from runs r
    where r.tenant_id = f.tenant_id and r.id = f.run_id and r.attempt = f.attempt
      and r.state = 'running')
