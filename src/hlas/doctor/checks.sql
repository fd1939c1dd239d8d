-- name: login
select session_user::text as name, rolsuper or rolbypassrls as unsafe
from pg_roles
where rolname = session_user

-- name: isolation
-- Every table with a tenant's rows, and whether row-level security guards it for everybody: one
-- policy for all roles and commands, and none that lets everybody in.
select c.relname::text as name,
       c.relrowsecurity as enabled,
       c.relforcerowsecurity as forced,
       exists (
           select from pg_policy p
           where p.polrelid = c.oid and p.polname = 'tenant_isolation' and p.polcmd = '*'
             and pg_get_expr(p.polqual, p.polrelid) like '%app.tenant_id%'
             and pg_get_expr(p.polwithcheck, p.polrelid) like '%app.tenant_id%'
       ) as guarded,
       exists (
           select from pg_policy p
           where p.polrelid = c.oid and p.polpermissive and p.polname <> 'tenant_isolation'
             and p.polroles && array[0::oid, to_regrole($1)::oid]
       ) as open
from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
  and (c.relname = 'tenants' or exists (
      select from pg_attribute a
      where a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped))
order by c.relname

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
