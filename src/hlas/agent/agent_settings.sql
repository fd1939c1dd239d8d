-- name: assignment
-- A row for each of the tenant's models, in the order in which they are tried.
select s.models, s.instructions, s.tools, s.acting_tools, s.link_hosts, s.max_steps, s.is_debug,
       s.canary, t.name as tenant_name,
       array(select case when d.is_wildcard then '*.' else '' end || d.host
             from tenant_domains d where d.tenant_id = t.id order by 1) as domains,
       exists (select from reservations r
               where r.tenant_id = t.id and r.run_id = $2::uuid
                 and not r.is_released) as is_paid,
       exists (select from products p where p.tenant_id = t.id) as has_products,
       m.name, m.base_url, m.model, m.key, m.input_price, m.output_price
from tenants t
join agent_settings s on s.tenant_id = t.id
cross join unnest(s.models) with ordinality as wanted (name, position)
join models m on m.tenant_id = '00000000-0000-0000-0000-000000000000' and m.name = wanted.name
where t.id = $1::uuid
order by wanted.position

-- name: read_settings
select models, instructions, tools, acting_tools, link_hosts, max_steps, is_debug
from agent_settings
where tenant_id = $1

-- name: lock_tenant
-- Serialises changes of a tenant's settings, also while it has none.
select id from tenants where id = $1 for no key update

-- name: make_settings
-- With the defaults of the schema.
insert into agent_settings (tenant_id) values ($1) on conflict do nothing

-- name: lock_models
-- Those that exist; none of them is removed before the transaction ends.
select name from models
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = any ($1)
for key share

-- name: set_models
update agent_settings set models = $2, updated_at = now() where tenant_id = $1

-- name: set_instructions
update agent_settings set instructions = $2, updated_at = now() where tenant_id = $1

-- name: set_tools
update agent_settings set tools = $2, updated_at = now() where tenant_id = $1

-- name: set_acting_tools
update agent_settings set acting_tools = $2, updated_at = now() where tenant_id = $1

-- name: set_link_hosts
update agent_settings set link_hosts = $2, updated_at = now() where tenant_id = $1

-- name: set_max_steps
update agent_settings set max_steps = $2, updated_at = now() where tenant_id = $1

-- name: set_debug
update agent_settings set is_debug = $2, updated_at = now() where tenant_id = $1

-- name: list_servers
-- The names of the tenant's MCP servers, whose tools it may choose.
select name from mcp_servers where tenant_id = $1 order by name
