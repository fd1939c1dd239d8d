-- name: tables
-- Every table with tenants' rows: whether row-level security is on and forced, whether the policy
-- for all roles and commands is there, and whether another policy lets the serving role in.
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
