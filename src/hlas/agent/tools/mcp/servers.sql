-- name: lock_tenant
-- Serialises changes of a tenant's servers, so that their number stays within the limit.
select id from tenants where id = $1 for no key update

-- name: list_servers
-- Without the headers: they are never shown again, and a tenant's administrators cannot read them.
select name, url, command, created_at
from mcp_servers
where tenant_id = $1
order by name

-- name: add_address
insert into mcp_servers (tenant_id, name, url, headers)
values ($1, $2, $3, $4)
on conflict do nothing
returning name, url, command, created_at

-- name: add_program
insert into mcp_servers (tenant_id, name, command)
values ($1, $2, $3)
on conflict do nothing
returning name, url, command, created_at

-- name: remove_server
delete from mcp_servers where tenant_id = $1 and name = $2 returning url, command

-- name: load_servers
select name, url, command, headers
from mcp_servers
where tenant_id = $1
order by name
