-- Reserves money for one request to a model, or says which cap it would exceed.
--
-- The tenant's budget is locked first, always: reservations of a tenant happen one after the other,
-- and two of them cannot deadlock. The second statement takes its snapshot after the lock (READ
-- COMMITTED, VOLATILE function), so it sees every reservation that was committed before.
--
-- `before` and `after` are the shares of the fullest cap of a day or a month that are used, for the
-- warnings at 80 % and 100 %. The clock is the database's; days and months are in UTC.
create function reserve_spend(
    p_tenant uuid, p_id uuid, p_conversation uuid, p_run uuid, p_model text, p_amount bigint
)
returns table (refused_by text, before double precision, after double precision)
language plpgsql volatile
set search_path = pg_catalog, public, pg_temp
as $$
declare
    budget budgets;
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    used_day bigint;
    used_month bigint;
    used_conversation bigint;
begin
    select * into budget from budgets where tenant_id = p_tenant for update;
    if not found then
        return query select 'tenant', 0.0::double precision, 0.0::double precision;
        return;
    end if;
    select coalesce(sum(amount) filter (where day = today), 0), coalesce(sum(amount), 0)
    into used_day, used_month
    from spend
    where tenant_id = p_tenant and day between date_trunc('month', today)::date and today;
    select coalesce(sum(amount), 0) into used_conversation
    from reservations
    where tenant_id = p_tenant and conversation_id = p_conversation;

    before := greatest(used_day / nullif(budget.cap_day, 0)::double precision,
                       used_month / nullif(budget.cap_month, 0)::double precision, 0);
    after := greatest((used_day + p_amount) / nullif(budget.cap_day, 0)::double precision,
                      (used_month + p_amount) / nullif(budget.cap_month, 0)::double precision, 0);
    refused_by := case
        when used_day + p_amount > budget.cap_day then 'day'
        when used_month + p_amount > budget.cap_month then 'month'
        when used_conversation + p_amount > budget.cap_conversation then 'conversation'
    end;
    if refused_by is null then
        insert into reservations (tenant_id, id, conversation_id, run_id, model, day, amount)
        values (p_tenant, p_id, p_conversation, p_run, p_model, today, p_amount);
        insert into spend as s (tenant_id, day, model, requests, amount)
        values (p_tenant, today, p_model, 1, p_amount)
        on conflict on constraint pk_spend do update
        set requests = s.requests + 1, amount = s.amount + excluded.amount;
    end if;
    return next;
end
$$
