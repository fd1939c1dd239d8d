-- Reserves money for one request to a model, or says which cap it would exceed.
--
-- The tenant's budget is locked before anything is read: reservations of a tenant happen one after
-- the other, and two of them cannot deadlock. Later statements take their snapshots after the lock
-- (READ COMMITTED, VOLATILE function), so they see every reservation that was committed before. The
-- tenant is locked before its budget, because that is the order in which a tenant is deleted; the
-- foreign keys below would lock it too late, and deadlock.
--
-- The clock is the database's, read under the lock; days and months are in UTC. Free models are
-- counted and never refused.
--
-- `warning_day` and `warning_month` are the kind of the incident that this reservation raised: the
-- cap is used to 80 %, or used up. A row for a tenant, kind and day; its details have the caps.
create function reserve_spend(
    p_tenant uuid, p_id uuid, p_conversation uuid, p_run uuid, p_model text, p_amount bigint
)
returns table (refused_by text, warning_day text, warning_month text)
language plpgsql volatile
set search_path = pg_catalog, public, pg_temp
-- While a tenant is being removed, its answers must not hold the connections of all the others.
set lock_timeout = '2s'
as $$
declare
    -- A billion dollars stands for no cap, so that every sum fits into a bigint.
    largest constant bigint := 1000000000000000000;
    budget budgets;
    today date;
    used_day numeric;
    used_month numeric;
    used_conversation numeric;
    period text;
    cap bigint;
    used numeric;
    reached text;
begin
    perform from tenants where id = p_tenant for key share;
    select * into budget from budgets where tenant_id = p_tenant for update;
    if not found then
        refused_by := 'tenant';
        return next;
        return;
    end if;
    today := (clock_timestamp() at time zone 'UTC')::date;
    select coalesce(sum(amount) filter (where day = today), 0), coalesce(sum(amount), 0)
    into used_day, used_month
    from spend
    where tenant_id = p_tenant and day >= date_trunc('month', today)::date
      and day < (date_trunc('month', today) + interval '1 month')::date;
    select coalesce(sum(amount), 0) into used_conversation
    from reservations
    where tenant_id = p_tenant and conversation_id = p_conversation;

    -- `least` ignores nulls.
    refused_by := case
        when p_amount = 0 then null
        when used_day + p_amount > least(budget.cap_day, largest) then 'day'
        when used_month + p_amount > least(budget.cap_month, largest) then 'month'
        when used_conversation + p_amount > least(budget.cap_conversation, largest)
            then 'conversation'
    end;
    if refused_by is null then
        insert into reservations (tenant_id, id, conversation_id, run_id, model, day, amount)
        values (p_tenant, p_id, p_conversation, p_run, p_model, today, p_amount);
        insert into spend as s (tenant_id, day, model, requests, amount)
        values (p_tenant, today, p_model, 1, p_amount)
        on conflict on constraint pk_spend do update
        set requests = s.requests + 1, amount = s.amount + excluded.amount;
        used_day := used_day + p_amount;
        used_month := used_month + p_amount;
    end if;

    for period, cap, used in
        values ('day', budget.cap_day, used_day), ('month', budget.cap_month, used_month)
    loop
        reached := case
            when p_amount = 0 then null
            when refused_by = period or used >= cap then 'budget_100'
            when used * 10 >= cap * 8::numeric then 'budget_80'
        end;
        continue when reached is null;
        -- Incidents are listed by their ids, so an id starts with the time, as a UUIDv7 does.
        insert into incidents as i (tenant_id, id, kind, started_at, details)
        values (
            p_tenant,
            encode(overlay(uuid_send(gen_random_uuid()) placing substring(int8send(
                (extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1), 'hex')::uuid,
            reached,
            today::timestamp at time zone 'UTC',
            jsonb_build_object(period, jsonb_build_object(
                'used_usd', trim_scale(used / 1000000000),
                'cap_usd', trim_scale(cap / 1000000000.0)))
        )
        on conflict (tenant_id, kind, started_at) do update
        set count = i.count + 1, details = i.details || excluded.details
        where not i.details ? period;
        if found and period = 'day' then
            warning_day := reached;
        elsif found then
            warning_month := reached;
        end if;
    end loop;
    return next;
end
$$
