-- name: login
select session_user::text as name, rolsuper or rolbypassrls as unsafe
from pg_roles
where rolname = session_user

-- name: durability
select current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit

-- name: clock
select extract(epoch from clock_timestamp())::float8 as now

-- name: tenant_of_origin
select t.slug, t.is_active
from resolve_origin($1, $2, $3) as r
join tenants t on t.id = r.tenant_id
