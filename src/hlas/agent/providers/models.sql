-- name: add_model
insert into models (name, base_url, model, key, input_price, output_price)
values ($1, $2, $3, $4, $5, $6)
on conflict do nothing

-- name: list_models
-- Without their keys; a null name is all of them.
select m.name, m.base_url, m.model, m.key is not null as has_key, m.input_price, m.output_price,
       m.created_at,
       array(select t.slug from agent_settings s join tenants t on t.id = s.tenant_id
             where m.name = any (s.models) order by t.slug) as tenants
from models m
where m.tenant_id = '00000000-0000-0000-0000-000000000000' and ($1::text is null or m.name = $1)
order by m.name

-- name: model_by_name
select name, base_url, model, key, input_price, output_price
from models
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = $1

-- name: lock_model
-- Waits for a tenant's settings that are about to name it.
select from models
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = $1
for update

-- name: update_model
update models
set base_url = $2, model = $3, input_price = $4, output_price = $5
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = $1

-- name: set_key
-- Null: the provider needs none.
update models
set key = $2
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = $1

-- name: remove_model
delete from models
where tenant_id = '00000000-0000-0000-0000-000000000000' and name = $1
