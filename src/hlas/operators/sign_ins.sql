-- name: add_signin
insert into signins (tenant_id, id, administrator_id, secret_hash)
select a.tenant_id, $1, a.id, $3
from administrators a
where a.id = $2 and a.revoked_at is null

-- name: signin_by_secret
-- A sign-in ends after 12 hours, after 2 idle hours, or with its key or tenant.
select s.tenant_id, s.id, s.administrator_id,
       s.last_seen_at < now() - interval '1 minute' as rested
from signins s
join administrators a on a.tenant_id = s.tenant_id and a.id = s.administrator_id
where s.secret_hash = $1 and a.revoked_at is null
  and s.created_at > now() - interval '12 hours' and s.last_seen_at > now() - interval '2 hours'

-- name: note_signin
update signins set last_seen_at = now() where tenant_id = $1 and id = $2

-- name: end_signin
delete from signins where secret_hash = $1

-- name: forget_signins
-- Delete those that have ended, and all but the newest 50 of one administrator.
delete from signins
where created_at < now() - interval '12 hours' or last_seen_at < now() - interval '2 hours'
   or id in (select id from signins where administrator_id = $1 order by id desc offset 50)

-- name: valid_digests
-- Of keys and sign-ins, all or some, under the conditions of keys_by_prefix and signin_by_secret.
with valid as (
  select a.tenant_id, a.id, a.key_hash
  from administrators a
  left join tenants t on t.id = a.tenant_id
  where a.revoked_at is null and (a.role = 'operator' or t.id is not null)
)
select key_hash as digest
from valid
where $1::bytea[] is null or key_hash = any ($1)
union all
select s.secret_hash
from signins s
join valid v on v.tenant_id = s.tenant_id and v.id = s.administrator_id
where ($1::bytea[] is null or s.secret_hash = any ($1))
  and s.created_at > now() - interval '12 hours' and s.last_seen_at > now() - interval '2 hours'
