-- name: tenants_with_retention
select id, slug, retention_days from tenants where retention_days is not null order by id

-- name: next_to_retire
-- Ids are in order of time, so the primary key finds the conversations that started long enough
-- ago. An index on the last message would cost every message. The lock admits one worker at a time.
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
