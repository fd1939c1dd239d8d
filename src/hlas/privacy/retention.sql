-- name: tenants_with_retention
select id, slug, retention_days from tenants where retention_days is not null order by id

-- name: next_to_retire
-- Ids are in order of time, so the primary key leads to those that began long enough ago; no index
-- on the last message, which every message would pay for. The lock lets one worker at a time do it.
with turn as materialized (
    select pg_try_advisory_xact_lock(hashtextextended('hlas.retention', 0)) as mine
),
border as materialized (
    select moment,
           (lpad(to_hex(greatest(0, extract(epoch from moment) * 1000)::bigint), 12, '0')
            || repeat('0', 20))::uuid as first_id
    from (select now() - make_interval(days => $2) as moment) as m
)
select c.tenant_id, c.id, c.last_seq
from turn, border b, conversations c
where turn.mine and c.tenant_id = $1 and c.id < b.first_id
  and coalesce(c.last_message_at, c.created_at) < b.moment
order by c.id
limit $3
for update of c skip locked
