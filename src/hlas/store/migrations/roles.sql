-- name: surroundings
-- The user that migrates, and the state of the database.
select quote_ident(session_user) as "user",
       quote_ident(current_database()) as "database",
       pg_has_role(current_user, d.datdba, 'USAGE') as owns_database,
       has_database_privilege('public', d.oid, 'CONNECT') as is_open,
       to_regclass('public.alembic_version') is not null
           and exists (select from pg_proc p
                       where p.proname = 'write_messages'
                         and p.pronamespace = 'public'::regnamespace) as is_migrated
from pg_database d
where d.datname = current_database()

-- name: used_in
-- Databases in which these roles own something, or were granted something.
select distinct d.datname::text as name,
       d.datname = current_database() as is_this,
       d.datdba <> (select datdba from pg_database
                    where datname = current_database()) as is_anothers
from pg_shdepend s
join pg_roles r on r.oid = s.refobjid
join pg_database d on d.oid = case
    when s.dbid <> 0 then s.dbid
    when s.classid = 'pg_database'::regclass then s.objid
end
where s.refclassid = 'pg_authid'::regclass and r.rolname = any ($1)
order by name

-- name: can_switch
-- Whether the user who migrates may act as the role; `kind` differs by version.
select coalesce(pg_has_role(current_user, to_regrole($1)::oid, $2), false)

-- name: definers
-- Functions that run with the rights of their owner.
select p.oid::regprocedure::text as signature, p.proname::text as name, r.rolname::text as owner
from pg_proc p
join pg_roles r on r.oid = p.proowner
where p.pronamespace = 'public'::regnamespace and p.prosecdef
order by name
