-- name: list_used
-- Models that agents of active tenants ask.
select m.name, m.base_url, m.model, m.key, m.input_price, m.output_price
from models m
where m.tenant_id = '00000000-0000-0000-0000-000000000000'
  and exists (select from agent_settings s join tenants t on t.id = s.tenant_id
              where t.is_active and m.name = any (s.models))
order by m.name
