-- name: add_counts
-- Sorted, so that two workers never deadlock; each count is added to its minute and its hour.
insert into traffic (tenant_id, span, start, kind, detail, count)
select g.tenant_id, s.span, date_trunc(s.span, g.moment), g.kind, g.detail, sum(g.count)
from unnest($1::timestamptz[], $2::uuid[], $3::text[], $4::text[], $5::bigint[])
         as g (moment, tenant_id, kind, detail, count)
cross join (values ('minute'), ('hour')) as s (span)
group by 1, 2, 3, 4, 5
order by 1, 2, 3, 4, 5
on conflict (tenant_id, span, start, kind, detail)
    do update set count = traffic.count + excluded.count

-- name: add_blocked
insert into blocked
    (created_at, tenant_id, id, reason, scope, route, conversation_id, request_id)
select *
from unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[],
            $7::uuid[], $8::text[])
on conflict do nothing

-- name: counts_by_start
-- For plots; of all tenants together when $3 is null.
select start, kind, detail, sum(count)::bigint as count
from traffic
where span = $1 and start >= $2 and ($3::uuid is null or tenant_id = $3)
group by start, kind, detail

-- name: counts_by_tenant
-- Without counts that belong to no tenant.
select t.slug, t.name, c.kind, c.detail, c.count
from (
    select tenant_id, kind, detail, sum(count)::bigint as count
    from traffic
    where span = $1 and start >= $2
    group by tenant_id, kind, detail
) as c
join tenants t on t.id = c.tenant_id

-- name: list_blocked
-- Newest first: ids are in order of time.
select b.*, t.slug
from blocked b
left join tenants t on t.id = b.tenant_id
where ($1::uuid is null or b.tenant_id = $1)
  and ($2::text is null or b.reason = $2)
  and ($3::text is null or b.request_id = $3)
  and ($4::uuid is null or b.id < $4)
order by b.id desc
limit $5

-- name: forget_minutes
delete from traffic where span = 'minute' and start < now() - interval '3 hours'

-- name: forget_hours
delete from traffic where span = 'hour' and start < now() - interval '8 days'

-- name: forget_blocked
-- Ids start with their time, so ix_blocked__id finds the old ones.
delete from blocked where id < $1
