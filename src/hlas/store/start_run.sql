-- Lets a run wait for visitors' messages that have none: those from before runs existed, those that
-- came while a person handled the conversation, and those whose run a takeover cancelled. Any worker
-- may claim it. Nothing is started while a run is active.
create function start_run(p_tenant uuid, p_conversation uuid)
returns void
language plpgsql volatile security definer
set search_path = pg_catalog, public, pg_temp
as $$
#variable_conflict use_column
declare
    held conversations;
begin
    select * into held
    from conversations
    where tenant_id = p_tenant and id = p_conversation
    for no key update;
    if held.status = 'open' and held.handler = 'agent' then
        -- With an id of its own: the messages' ids may be those of cancelled runs.
        insert into runs (tenant_id, id, conversation_id, first_seq, reply_to, epoch, state,
                          lease_until)
        select p_tenant, gen_random_uuid(), p_conversation, min(m.seq), max(m.seq),
               held.handler_epoch, 'waiting', now()
        from messages m
        where m.tenant_id = p_tenant and m.conversation_id = p_conversation and m.role = 'user'
          -- A later answer may be about earlier messages: runs say which ones they answer.
          and m.seq > (
              select coalesce(max(r.reply_to), 0)
              from runs r
              where r.tenant_id = p_tenant and r.conversation_id = p_conversation
                and r.state in ('done', 'stopped'))
          and m.seq > (
              select coalesce(max(o.seq), 0)
              from messages o
              where o.tenant_id = p_tenant and o.conversation_id = p_conversation
                and (o.role = 'operator' or o.role = 'assistant' and not exists (
                    select from runs r
                    where r.tenant_id = p_tenant and r.conversation_id = p_conversation
                      and r.message_id = o.id)))
          and not exists (
              select from runs r
              where r.tenant_id = p_tenant and r.conversation_id = p_conversation
                and r.state in ('waiting', 'running'))
        having count(*) > 0;
    end if;
end
$$
