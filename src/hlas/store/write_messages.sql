-- Group commit: the rows of many requests in one transaction, each with its own outcome.
--
-- The conversations are locked first, so seq is gapless and in commit order, and two requests cannot
-- claim the same key. SKIP LOCKED: a conversation that another process is writing to comes back as
-- 'locked' and is tried again with the next batch, so one stuck conversation never holds up the
-- others. What it may wait for is the row of a run. There is no deadlock: who locks a run without its
-- conversation locks a single one, or skips those that are locked.
--
-- The second statement takes its snapshot after the locks (READ COMMITTED, VOLATILE function), so it
-- sees every key that was committed before. Row 0 of the result counts the created messages; each
-- other row is a request that created nothing, with the reason, or a run that p_owner has to answer.
--
-- Where the agent handles a conversation, a visitor's message starts a run in the same transaction,
-- or joins the one that waits. An agent's message carries its run and the attempt: it is written
-- only while p_owner holds the run, and while nobody has taken the conversation over since the run
-- began. An operator's message takes the conversation over. In a batch with an operator's message
-- the agent's message of that conversation is 'locked', so that the next batch sees the takeover.
--
-- Planning this for every batch cost more than running it, hence the generic plan.
--
-- A revision that changes this function loads this file; the revision that loaded it before keeps a
-- copy of the old text.
create function write_messages(
    p_owner uuid, p_tenants uuid[], p_conversations uuid[], p_generations integer[], p_ids uuid[],
    p_roles text[], p_contents text[], p_metas jsonb[], p_keys text[], p_hashes bytea[],
    p_responses json[], p_runs uuid[], p_attempts integer[]
)
returns table (n integer, outcome text, request_hash bytea, response json)
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    held uuid[];
    -- The conversations that this batch may take over.
    taken uuid[];
begin
    -- Never null: to `any (null)` the answer is unknown, and unknown would count as held.
    select coalesce(array_agg(locked.id), '{}') into held
    from (
        select c.id
        from unnest(p_tenants, p_conversations) as i (tenant_id, id)
        join conversations c on c.tenant_id = i.tenant_id and c.id = i.id
        order by c.tenant_id, c.id
        for no key update of c skip locked
    ) as locked;

    select coalesce(array_agg(i.id), '{}') into taken
    from unnest(p_conversations, p_roles) as i (id, role)
    where i.role = 'operator';

    return query
    with request as materialized (
        select i.*, k.request_hash as stored_hash, k.response as stored_response, c.last_seq,
               c.handler, c.handler_epoch,
               case
                   when c.id is null then 'conversation_not_found'
                   when not t.is_active then 'tenant_inactive'
                   when t.token_generation <> i.generation then 'session_revoked'
                   when k.key is not null then 'stored'
                   when c.status <> 'open' then 'conversation_closed'
                   when not (c.id = any (held)) then 'locked'
                   when i.run_id is null then 'created'
                   when c.id = any (taken) then 'locked'
                   when r.epoch <> c.handler_epoch or c.handler <> 'agent' then 'taken_over'
                   when r.id is null or r.state <> 'running' or r.owner is distinct from p_owner
                       or r.attempt <> i.attempt then 'run_lost'
                   else 'created'
               end as outcome
        from unnest(p_tenants, p_conversations, p_generations, p_ids, p_roles, p_contents,
                    p_metas, p_keys, p_hashes, p_responses, p_runs, p_attempts)
             with ordinality as i (tenant_id, conversation_id, generation, id, role, content,
                                   meta, key, request_hash, response, run_id, attempt, n)
        left join tenants t on t.id = i.tenant_id
        left join conversations c on c.tenant_id = i.tenant_id and c.id = i.conversation_id
        left join idempotency_keys k
            on k.tenant_id = i.tenant_id and k.conversation_id = i.conversation_id
            and k.key = i.key
        left join runs r on r.tenant_id = i.tenant_id and r.id = i.run_id
            and r.conversation_id = i.conversation_id
    ),
    fresh as materialized (
        select r.*, r.last_seq + row_number() over (
                   partition by r.tenant_id, r.conversation_id order by r.n) as seq
        from request r
        where r.outcome = 'created'
    ),
    claimed as (
        insert into idempotency_keys (tenant_id, conversation_id, key, request_hash, response)
        select f.tenant_id, f.conversation_id, f.key, f.request_hash, f.response
        from fresh f
        where f.key is not null
    ),
    written as (
        insert into messages (tenant_id, id, conversation_id, seq, role, content, meta)
        select f.tenant_id, f.id, f.conversation_id, f.seq, f.role, f.content, f.meta
        from fresh f
    ),
    counted as (
        update conversations c
        set last_seq = f.seq, last_message_at = now(),
            handler = case when f.is_taken then 'human' else c.handler end,
            handler_epoch = c.handler_epoch + (f.is_taken and c.handler = 'agent')::integer
        from (
            select tenant_id, conversation_id, max(seq) as seq, bool_or(role = 'operator') as is_taken
            from fresh
            group by tenant_id, conversation_id
        ) as f
        where c.tenant_id = f.tenant_id and c.id = f.conversation_id
    ),
    finished as (
        update runs r
        set state = 'done', message_id = f.id
        from fresh f
        where f.run_id is not null and r.tenant_id = f.tenant_id and r.id = f.run_id
        returning r.tenant_id, r.conversation_id
    ),
    cancelled as (
        update runs r
        set state = 'cancelled'
        from fresh f
        where f.role = 'operator' and r.tenant_id = f.tenant_id
          and r.conversation_id = f.conversation_id and r.state in ('waiting', 'running')
    ),
    asked as (
        select tenant_id, conversation_id, (array_agg(id order by n))[1] as id,
               min(seq) as first_seq, max(seq) as reply_to, max(handler_epoch) as epoch
        from fresh f
        where role = 'user' and handler = 'agent' and not exists (
            -- An operator's message that was refused, or is a replay, takes nothing over.
            select from fresh o where o.role = 'operator' and o.conversation_id = f.conversation_id)
        group by tenant_id, conversation_id
    ),
    started as (
        -- While another run is active, this one waits, or adds its messages to the one that waits.
        insert into runs (tenant_id, id, conversation_id, first_seq, reply_to, epoch, state,
                          attempt, owner)
        select a.tenant_id, a.id, a.conversation_id, a.first_seq, a.reply_to, a.epoch,
               case when b.is_busy then 'waiting' else 'running' end,
               case when b.is_busy then 0 else 1 end, p_owner
        from asked a
        cross join lateral (
            select exists (
                select from runs r
                where r.tenant_id = a.tenant_id and r.conversation_id = a.conversation_id
                  and r.state in ('waiting', 'running')
            ) as is_busy
        ) as b
        on conflict (tenant_id, conversation_id, state) where state in ('waiting', 'running')
            do update set reply_to = excluded.reply_to
        returning *
    )
    select 0, 'created', null::bytea, to_json(count(*)) from fresh
    union all
    select r.n::integer, r.outcome, r.stored_hash, r.stored_response
    from request r
    where r.outcome <> 'created'
    union all
    select -1, 'run', null, json_build_object(
        'id', s.id, 'tenant_id', s.tenant_id, 'conversation_id', s.conversation_id,
        'first_seq', s.first_seq, 'reply_to', s.reply_to, 'epoch', s.epoch, 'attempt', s.attempt)
    from started s
    where s.state = 'running'
    union all
    -- The next run of these conversations can be claimed.
    select -1, 'waiting', null, to_json(count(*))
    from finished f
    where exists (select from started s where s.tenant_id = f.tenant_id
                  and s.conversation_id = f.conversation_id)
       or exists (select from runs r where r.tenant_id = f.tenant_id
                  and r.conversation_id = f.conversation_id and r.state = 'waiting')
    having count(*) > 0;
end
$$
