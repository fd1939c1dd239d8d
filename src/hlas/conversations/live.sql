-- name: publish_changes
insert into changes (tenant_id, conversation_id, worker)
select c.tenant_id, c.conversation_id, $3
from unnest($1::uuid[], $2::uuid[]) as c (tenant_id, conversation_id)

-- name: last_change
select coalesce(max(id), 0) as id from changes

-- name: read_published
-- Ids are taken before the commit, so lower ids may appear later. $1 is the id up to which all are
-- known, $2 are the higher ones that were read.
select id, tenant_id::text as tenant_id, conversation_id::text as conversation_id,
       worker::text as worker
from changes
where id > $1 and not (id = any ($2))
order by id

-- name: delete_changes
delete from changes where created_at < clock_timestamp() - interval '10 s'

-- name: standing
select id::text as id, token_generation from tenants where id = any ($1::uuid[]) and is_active

-- name: read_changes
-- What readers of some conversations of one tenant have not seen: state, messages after a seq, and
-- the frames of the run under way, in one snapshot. $4 to $6 say up to which row of frames of which
-- attempt at which run they are known. At most $7 messages and about $8 bytes each.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select w.id::text as id, w.after, c.status, c.handler, c.last_seq, m.seqs, m.runs, m.frames,
       r.attempt, r.reply_to, f.numbers, f.pieces,
       (select max(reply_to) from runs
        where tenant_id = s.tenant_id and conversation_id = w.id and state = 'stopped') as stopped_to
from scope s
cross join unnest($2::uuid[], $3::integer[], $4::integer[], $5::integer[], $6::integer[])
           as w (id, after, known_run, known_attempt, known_number)
left join lateral (
    select status, handler, last_seq
    from conversations
    where tenant_id = s.tenant_id and id = w.id
    offset 0
) as c on true
left join lateral (
    select array_agg(seq order by seq) as seqs,
           array_agg(run order by seq) as runs,
           array_agg(frame order by seq) as frames
    from (
        select seq, run,
               json_build_object('type', 'data-message', 'data', json_build_object(
                   'id', id, 'seq', seq, 'role', role, 'content', content, 'metadata', meta,
                   'created_at', created_at))::text as frame,
               sum(octet_length(content) + octet_length(meta::text)) over (order by seq) as bytes
        from (
            select id, seq, role, content, meta, created_at
            from messages
            where tenant_id = s.tenant_id and conversation_id = w.id and seq > w.after
            order by seq
            limit $7
        ) as page
        left join lateral (
            -- The attempt that made this answer: readers may have seen text of another one. None has
            -- the number 0.
            select reply_to || '.' || case when page.meta ? 'retracted' then 0 else attempt end as run
            from runs
            where tenant_id = s.tenant_id and conversation_id = w.id and message_id = page.id
              -- A visitor's metadata may be anything.
              and reply_to = case when page.role = 'assistant'
                             then (page.meta ->> 'reply_to')::integer end
            offset 0
        ) as made on true
    ) as following
    where bytes <= $8 or seq = w.after + 1
) as m on true
left join lateral (
    select id, attempt, reply_to
    from runs
    where tenant_id = s.tenant_id and conversation_id = w.id and state = 'running'
    offset 0
) as r on true
left join lateral (
    select array_agg(number order by number) as numbers, array_agg(frames order by number) as pieces
    from run_frames
    where tenant_id = s.tenant_id and run_id = r.id and attempt = r.attempt
      -- The last row that is known may have grown.
      and number >= case when (r.reply_to, r.attempt) = (w.known_run, w.known_attempt)
                    then w.known_number else 0 end
) as f on true
