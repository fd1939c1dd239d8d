-- name: assignment
-- A row for each of the tenant's models, in the order in which they are tried.
select s.models, s.instructions, s.tools, s.acting_tools, s.link_hosts, s.max_steps, s.is_debug,
       s.canary, t.name as tenant_name,
       array(select case when d.is_wildcard then '*.' else '' end || d.host
             from tenant_domains d where d.tenant_id = t.id order by 1) as domains,
       exists (select from reservations r
               where r.tenant_id = t.id and r.run_id = $2::uuid) as is_paid,
       m.name, m.base_url, m.model, m.key, m.input_price, m.output_price
from tenants t
join agent_settings s on s.tenant_id = t.id
cross join unnest(s.models) with ordinality as wanted (name, position)
join models m on m.tenant_id = '00000000-0000-0000-0000-000000000000' and m.name = wanted.name
where t.id = $1::uuid
order by wanted.position
