-- name: tables
-- The tables that hold lasting rows of tenants, each with those that it points to.
select c.relname::text as name,
       array(
           select distinct f.relname::text
           from pg_constraint k
           join pg_class f on f.oid = k.confrelid
           where k.conrelid = c.oid and k.contype = 'f' and f.oid <> c.oid
       ) as parents
from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' and c.relpersistence = 'p'
  and c.relname <> 'alembic_version'

-- name: counts
select (select version_num from alembic_version) as revision,
       (select count(*) from tenants) as tenants,
       (select count(*) from conversations) as conversations,
       (select count(*) from messages) as messages

-- name: last_version
-- Of knowledge and its vectors, which share a sequence.
select greatest((select max(version) from knowledge), (select max(number) from knowledge_vectors))

-- name: set_version
select setval('knowledge_versions', $1::bigint)
