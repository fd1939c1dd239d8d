-- name: add_tenant
insert into tenants (id, slug, name, ui_config, fallback_text)
values ($1, $2, $3, $4, $5)
returning *

-- name: list_tenants
-- By slug, from after the one given; a limit of null is none.
select t.*, coalesce(
    (select array_agg(d.domain order by d.domain) from tenant_domains d where d.tenant_id = t.id),
    '{}') as domains
from tenants t
where $1::text is null or t.slug > $1
order by t.slug
limit $2

-- name: tenant_by_slug
select t.*, coalesce(
    (select array_agg(d.domain order by d.domain) from tenant_domains d where d.tenant_id = t.id),
    '{}') as domains
from tenants t
where t.slug = $1

-- name: lock_tenant
-- One change of a tenant at a time; visitors' messages refer to the tenant and go on.
select id from tenants where slug = $1 for no key update

-- name: set_name
update tenants set name = $2, updated_at = now() where id = $1

-- name: set_active
update tenants set is_active = $2, updated_at = now() where id = $1

-- name: set_ui_config
update tenants set ui_config = $2, updated_at = now() where id = $1

-- name: set_fallback_text
update tenants set fallback_text = $2, updated_at = now() where id = $1

-- name: set_limits
update tenants set limits = $2, updated_at = now() where id = $1

-- name: set_retention_days
update tenants set retention_days = $2, updated_at = now() where id = $1

-- name: set_identity_mode
update tenants set identity_mode = $2, updated_at = now() where id = $1

-- name: sign_out
-- Tokens carry the generation they were made in; a new one ends them all at their next statement.
update tenants set token_generation = token_generation + 1, updated_at = now() where id = $1

-- name: remove_tenant
-- No foreign key leads from administrators, whose operators belong to no tenant.
with keys as (delete from administrators where tenant_id = $1)
delete from tenants where id = $1

-- name: add_domain
insert into tenant_domains (tenant_id, domain, scheme, host, port, is_wildcard)
values ($1, $2, $3, $4, $5, $6)

-- name: remove_domain
delete from tenant_domains where tenant_id = $1 and domain = $2
