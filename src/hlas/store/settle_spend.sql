-- Replaces a reservation by what the request cost: at most what was reserved, and only once.
-- Returns the cost; null where there is no such reservation, or it was settled before.
create function settle_spend(
    p_tenant uuid, p_id uuid, p_input_tokens bigint, p_output_tokens bigint, p_cost bigint
)
returns bigint
language plpgsql volatile
set search_path = pg_catalog, public, pg_temp
-- While a tenant is being removed, its answers must not hold the connections of all the others.
set lock_timeout = '2s'
as $$
declare
    held reservations;
    cost bigint;
begin
    perform from budgets where tenant_id = p_tenant for update;
    select * into held from reservations where tenant_id = p_tenant and id = p_id and not is_settled;
    if not found then
        return null;
    end if;
    cost := greatest(0, least(p_cost, held.amount));
    update reservations set amount = cost, is_settled = true
    where tenant_id = p_tenant and id = p_id;
    -- The day is that of the reservation, however late this is.
    update spend
    set amount = amount - held.amount + cost,
        input_tokens = input_tokens + greatest(0, p_input_tokens),
        output_tokens = output_tokens + greatest(0, p_output_tokens)
    where tenant_id = p_tenant and day = held.day and model = held.model;
    return cost;
end
$$
