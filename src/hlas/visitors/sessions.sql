-- name: resolve_origin
-- The tenant of an origin, for limits and CORS; statements that write check it again.
select tenant_id::text as tenant_id, is_active from resolve_origin($1, $2, $3)

-- name: open_session
-- One round trip: origin to tenant, tenant scope, conversation. `offset 0` keeps the planner
-- from reading tenants before the scope is set, when row-level security would hide every row.
with tenant as materialized (
    select tenant_id, is_active from resolve_origin($1, $2, $3)
),
scope as materialized (
    select tenant_id, set_config('app.tenant_id', tenant_id::text, true)
    from tenant
    where is_active
),
host as materialized (
    select s.tenant_id, t.*
    from scope s
    cross join lateral (
        select ui_config, token_generation, identity_mode, handler
        from tenants
        where id = s.tenant_id
        offset 0
    ) as t
),
opened as (
    insert into conversations (tenant_id, id, visitor_id, origin, meta, handler)
    select tenant_id, $4, $5, $6, $7, handler from host where identity_mode <> 'required'
)
select r.tenant_id::text as tenant_id, r.is_active,
       h.ui_config, h.token_generation, h.identity_mode
from tenant r
left join host h on true

-- name: read_signer
-- One round trip: origin to tenant, tenant scope, and the tenant's visitor keys.
with tenant as materialized (
    select tenant_id, is_active from resolve_origin($1, $2, $3)
),
scope as materialized (
    select tenant_id, set_config('app.tenant_id', tenant_id::text, true)
    from tenant
    where is_active
)
select r.tenant_id::text as tenant_id, r.is_active, t.slug, t.identity_mode, t.token_generation,
       k.kid, k.algorithm, k.material
from tenant r
left join scope s on true
left join lateral (
    select slug, identity_mode, token_generation from tenants where id = s.tenant_id offset 0
) as t on true
left join lateral (
    select kid, algorithm, material from visitor_keys where tenant_id = s.tenant_id offset 0
) as k on true

-- name: resume_session
-- One round trip: a verified visitor's open conversation, or a new one if there is none. The loser
-- of a race with another device gets no row and retries.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
),
host as materialized (
    select s.tenant_id, t.*
    from scope s
    cross join lateral (
        select is_active, ui_config, handler
        from tenants
        where id = s.tenant_id
        offset 0
    ) as t
),
found as materialized (
    select c.id
    from host h
    cross join lateral (
        select id
        from conversations
        where tenant_id = h.tenant_id and visitor_id = $3 and is_verified and status = 'open'
        offset 0
    ) as c
),
opened as (
    insert into conversations (tenant_id, id, visitor_id, is_verified, origin, meta, handler)
    select tenant_id, $2, $3, true, $4, $5, handler
    from host
    where is_active and not exists (select from found)
    on conflict do nothing
    returning id
)
select h.is_active, h.ui_config, coalesce(f.id, o.id)::text as conversation_id
from host h
left join found f on true
left join opened o on true

-- name: check_refresh
-- Whether the tenant and the conversation of a token are still valid, and its origin still allowed.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, t.ui_config, t.identity_mode, c.status, c.is_verified,
       exists (
           select from resolve_origin($3, $4, $5) as r where r.tenant_id = s.tenant_id
       ) as is_allowed
from scope s
left join lateral (
    select is_active, token_generation, ui_config, identity_mode
    from tenants
    where id = s.tenant_id
    offset 0
) as t on true
left join lateral (
    select status, is_verified from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true

-- name: check_session
-- Whether the tenant and the conversation of a token are still valid.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
)
select t.is_active, t.token_generation, c.status
from scope s
left join lateral (
    select is_active, token_generation from tenants where id = s.tenant_id offset 0
) as t on true
left join lateral (
    select status from conversations where tenant_id = s.tenant_id and id = $2 offset 0
) as c on true
