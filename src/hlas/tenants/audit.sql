-- name: record_event
-- In the transaction of the change it describes.
insert into events (tenant_id, id, actor, action, target, before, after, request_id)
values ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: tenants_called
-- The tenants that have or had this slug: events remain after their tenant is removed.
select id from tenants where slug = $1
union
select tenant_id from events where action = 'tenant.remove' and target = $1

-- name: list_events
-- Newest first: ids are in order of time.
select e.tenant_id, t.slug, e.id, e.actor, e.action, e.target, e.before, e.after, e.request_id,
       e.created_at
from events e
left join tenants t on t.id = e.tenant_id
where ($1::uuid[] is null or e.tenant_id = any ($1))
  and ($2::text is null or e.action = $2 or starts_with(e.action, $2 || '.'))
  and ($3::uuid is null or e.id < $3)
order by e.id desc
limit $4
