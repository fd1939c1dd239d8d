-- name: add_tenant
insert into tenants (id, slug, name, ui_config, fallback_text)
values ($1, $2, $3, $4, $5)
returning *

-- name: list_tenants
select t.*, coalesce(
    (select array_agg(d.domain order by d.domain) from tenant_domains d where d.tenant_id = t.id),
    '{}') as domains
from tenants t
order by t.slug

-- name: tenant_by_slug
select t.*, coalesce(
    (select array_agg(d.domain order by d.domain) from tenant_domains d where d.tenant_id = t.id),
    '{}') as domains
from tenants t
where t.slug = $1

-- name: set_active
update tenants set is_active = $2, updated_at = now() where id = $1

-- name: sign_out
-- Tokens carry the generation they were made in; a new one ends them all at their next statement.
update tenants set token_generation = token_generation + 1, updated_at = now() where id = $1

-- name: remove_tenant
delete from tenants where id = $1

-- name: add_domain
insert into tenant_domains (tenant_id, domain, scheme, host, port, is_wildcard)
values ($1, $2, $3, $4, $5, $6)

-- name: remove_domain
delete from tenant_domains where tenant_id = $1 and domain = $2

-- name: record_event
-- Written in the transaction of the change it tells of.
insert into events (tenant_id, id, actor, action, target, before, after, request_id)
values ($1, $2, $3, $4, $5, $6, $7, $8)
