-- name: resolve_origin
-- The tenant of an origin, for limits and CORS; what is written is checked again as it is written.
select tenant_id::text as tenant_id, is_active from resolve_origin($1, $2, $3)

-- name: open_session
-- One round trip: origin to tenant, tenant scope, conversation. `offset 0` keeps the planner
-- from reading tenants before the scope is set, which row-level security would answer with nothing.
with tenant as materialized (
    select tenant_id, is_active from resolve_origin($1, $2, $3)
),
scope as materialized (
    select tenant_id, set_config('app.tenant_id', tenant_id::text, true)
    from tenant
    where is_active
),
opened as (
    insert into conversations (tenant_id, id, visitor_id, origin, meta)
    select tenant_id, $4, $5, $6, $7 from scope
)
select r.tenant_id::text as tenant_id, r.is_active, t.ui_config, t.token_generation
from tenant r
left join scope s on true
left join lateral (
    select ui_config, token_generation from tenants where id = s.tenant_id offset 0
) as t on true

-- name: check_session
-- Whether the tenant and the conversation of a token still stand.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, t.ui_config, c.status
from scope s
left join lateral (
    select is_active, token_generation, ui_config from tenants where id = s.tenant_id offset 0
) as t on true
left join lateral (
    select status from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true
