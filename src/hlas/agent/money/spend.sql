-- name: reserve
select refused_by, warning_day, warning_month
from reserve_spend($1::text::uuid, $2::text::uuid, $3::text::uuid, $4::text::uuid, $5, $6)

-- name: settle
select settle_spend($1::text::uuid, $2::text::uuid, $3, $4, $5) as cost

-- name: list_spend
select day, model, requests, input_tokens, output_tokens, amount
from spend
where tenant_id = $1 and day > (clock_timestamp() at time zone 'UTC')::date - $2::integer
order by day desc, amount desc, model

-- name: forget_reservations
-- A batch. Ids are in order of time, so each tenant's old rows are first in the primary key. The
-- lock admits one worker at a time.
with turn as materialized (
    select pg_try_advisory_xact_lock(hashtextextended('hlas.reservations', 0)) as mine
),
border as materialized (
    select (lpad(to_hex((extract(epoch from now() - make_interval(days => $1)) * 1000)::bigint),
                 12, '0') || repeat('0', 20))::uuid as first_id
),
old as materialized (
    select r.tenant_id, r.id
    from turn
    cross join border b
    cross join budgets of_tenant
    cross join lateral (
        select tenant_id, id
        from reservations
        where tenant_id = of_tenant.tenant_id and id < b.first_id
        order by id
        limit $2
    ) as r
    where turn.mine
    limit $2
)
delete from reservations r
using old
where r.tenant_id = old.tenant_id and r.id = old.id

-- name: mark_released
update reservations set is_released = true where tenant_id = $1 and id = $2
