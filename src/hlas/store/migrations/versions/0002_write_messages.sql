-- Group commit: the rows of many requests in one transaction, each with its own outcome.
--
-- The conversations are locked first, so seq is gapless and in commit order, and two requests cannot
-- claim the same key. SKIP LOCKED: a conversation that another process is writing to comes back as
-- 'locked' and is tried again with the next batch. Nothing waits, nothing deadlocks, and one stuck
-- conversation never holds up the others.
--
-- The second statement takes its snapshot after the locks (READ COMMITTED, VOLATILE function), so it
-- sees every key that was committed before. Row 0 of the result counts the created messages; each
-- other row is a request that created nothing, with the reason.
--
-- Planning this for every batch cost more than running it, hence the generic plan.
create function write_messages(
    p_tenants uuid[], p_conversations uuid[], p_generations integer[], p_ids uuid[],
    p_roles text[], p_contents text[], p_metas jsonb[], p_keys text[], p_hashes bytea[],
    p_responses json[]
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

    return query
    with request as materialized (
        select i.*, k.request_hash as stored_hash, k.response as stored_response, c.last_seq,
               case
                   when c.id is null then 'conversation_not_found'
                   when not t.is_active then 'tenant_inactive'
                   when t.token_generation <> i.generation then 'session_revoked'
                   when k.key is not null then 'stored'
                   when c.status <> 'open' then 'conversation_closed'
                   when not (c.id = any (held)) then 'locked'
                   else 'created'
               end as outcome
        from unnest(p_tenants, p_conversations, p_generations, p_ids, p_roles, p_contents,
                    p_metas, p_keys, p_hashes, p_responses)
             with ordinality as i (tenant_id, conversation_id, generation, id, role, content,
                                   meta, key, request_hash, response, n)
        left join tenants t on t.id = i.tenant_id
        left join conversations c on c.tenant_id = i.tenant_id and c.id = i.conversation_id
        left join idempotency_keys k
            on k.tenant_id = i.tenant_id and k.conversation_id = i.conversation_id
            and k.key = i.key
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
        set last_seq = f.seq, last_message_at = now()
        from (
            select tenant_id, conversation_id, max(seq) as seq
            from fresh
            group by tenant_id, conversation_id
        ) as f
        where c.tenant_id = f.tenant_id and c.id = f.conversation_id
    )
    select 0, 'created', null::bytea, to_json(count(*)) from fresh
    union all
    select r.n::integer, r.outcome, r.stored_hash, r.stored_response
    from request r
    where r.outcome <> 'created';
end
$$
