-- name: raise_incidents
-- Count the signs of each kind in a tenant's hour, and add a row over the threshold. Sorted, so
-- that two workers never deadlock; one adds the row and logs it, the others raise its count.
with asked as (
    select distinct on (a.tenant_id, a.kind, date_trunc('hour', a.moment))
           a.tenant_id, a.kind, date_trunc('hour', a.moment) as start, a.threshold, a.id
    from unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::bigint[], $5::uuid[])
             as a (tenant_id, moment, kind, threshold, id)
    join tenants t on t.id = a.tenant_id
),
counted as (
    select a.tenant_id, a.id, a.kind, a.start, sum(c.count)::bigint as count,
           jsonb_object_agg(c.detail, c.count) as details
    from asked a
    join unnest($6::text[], $7::text[], $8::text[]) as s (kind, counted, detail) on s.kind = a.kind
    join traffic c on c.tenant_id = a.tenant_id and c.span = 'hour' and c.start = a.start
                  and c.kind = s.counted and c.detail = s.detail
    group by a.tenant_id, a.id, a.kind, a.start, a.threshold
    having sum(c.count) >= a.threshold
)
insert into incidents as i (tenant_id, id, kind, started_at, count, details)
select tenant_id, id, kind, start, count, details
from counted
order by tenant_id, kind, start
on conflict (tenant_id, kind, started_at)
    do update set count = excluded.count, details = excluded.details
    where i.count < excluded.count
returning i.tenant_id::text as tenant_id, i.kind, i.count, i.xmax = 0 as is_new

-- name: list_incidents
-- Newest first: ids are in order of time.
select i.*, t.slug
from incidents i
join tenants t on t.id = i.tenant_id
where ($1::uuid is null or i.tenant_id = $1) and ($2::uuid is null or i.id < $2)
order by i.id desc
limit $3
