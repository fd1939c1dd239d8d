-- name: list_budgets
-- By slug; `used_*` are of the day and the month in UTC, reservations included.
select t.id as tenant_id, t.slug, t.name, clock.today,
       b.cap_day, b.cap_month, b.cap_conversation,
       coalesce(sum(s.amount) filter (where s.day = clock.today), 0)::bigint as used_today,
       coalesce(sum(s.amount), 0)::bigint as used_this_month
from (select (clock_timestamp() at time zone 'UTC')::date as today) as clock
cross join tenants t
join budgets b on b.tenant_id = t.id
left join spend s on s.tenant_id = t.id
                 and s.day >= date_trunc('month', clock.today)::date
                 and s.day < (date_trunc('month', clock.today) + interval '1 month')::date
where $1::text is null or t.slug = $1
group by t.id, t.slug, t.name, clock.today, b.cap_day, b.cap_month, b.cap_conversation
order by t.slug

-- name: lock_caps
-- The lock under which money is reserved.
select b.tenant_id, b.cap_day, b.cap_month, b.cap_conversation
from budgets b
join tenants t on t.id = b.tenant_id
where t.slug = $1
for update of b

-- name: set_caps
update budgets set cap_day = $2, cap_month = $3, cap_conversation = $4 where tenant_id = $1
