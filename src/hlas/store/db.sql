-- name: session
-- The role of this connection, and whether a tenant is set before a transaction sets one.
select session_user::text as session_name,
       current_user::text as current_name,
       coalesce(current_setting('app.tenant_id', true), '') <> '' as tenant

-- name: roles
-- What these roles could do beyond what they were granted.
select r.rolname::text as name,
       rolcanlogin as can_log_in,
       rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication as privileged,
       exists (
           select from pg_class c where c.relowner = r.oid and c.relkind in ('r', 'p')) as owner,
       exists (select from pg_auth_members m where m.member = r.oid) as member,
       coalesce(rolconfig, '{}') as settings
from pg_roles r
where r.rolname = any ($1)
