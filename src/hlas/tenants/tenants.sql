-- name: add_tenant
-- With its budget, whose row is the lock under which the tenant's money is reserved.
with added as (
    insert into tenants (id, slug, name, ui_config, fallback_text, fallback_texts)
    values ($1, $2, $3, $4, $5, $6)
    returning id
)
insert into budgets (tenant_id) select id from added

-- name: list_tenants
-- By slug, after the given one; a null limit means no limit.
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
-- Serialises changes of a tenant; NO KEY UPDATE lets its visitors' messages be inserted meanwhile.
select id from tenants where slug = $1 for no key update

-- name: set_name
update tenants set name = $2, updated_at = now() where id = $1

-- name: set_active
update tenants set is_active = $2, updated_at = now() where id = $1

-- name: set_ui_config
update tenants set ui_config = $2, updated_at = now() where id = $1

-- name: set_fallback_text
update tenants set fallback_text = $2, updated_at = now() where id = $1

-- name: set_fallback_texts
update tenants set fallback_texts = $2, updated_at = now() where id = $1

-- name: set_limits
update tenants set limits = $2, updated_at = now() where id = $1

-- name: set_retention_days
update tenants set retention_days = $2, updated_at = now() where id = $1

-- name: set_handler
update tenants set handler = $2, updated_at = now() where id = $1

-- name: set_identity_mode
update tenants set identity_mode = $2, updated_at = now() where id = $1

-- name: sign_out
-- A token carries the generation it was issued in; after this, each one is refused at its next use.
update tenants set token_generation = token_generation + 1, updated_at = now() where id = $1

-- name: remove_tenant
-- Administrators have no foreign key to tenants, because operators belong to none.
with keys as (delete from administrators where tenant_id = $1)
delete from tenants where id = $1

-- name: add_domain
insert into tenant_domains (tenant_id, domain, scheme, host, port, is_wildcard)
values ($1, $2, $3, $4, $5, $6)

-- name: remove_domain
delete from tenant_domains where tenant_id = $1 and domain = $2

-- name: holder_of_domain
select t.slug, d.domain
from tenant_domains d
join tenants t on t.id = d.tenant_id
where d.domain = any ($2) and t.slug <> $1
limit 1

-- name: preceding_domains
-- Domains of other tenants that match pages of these, and that resolve_origin prefers.
select own.domain, t.slug as other_slug, other.domain as other_domain
from tenant_domains own
join tenants mine on mine.id = own.tenant_id
join tenant_domains other on other.tenant_id <> own.tenant_id
    and (other.scheme = own.scheme or other.scheme is null or own.scheme is null)
    and (other.port = own.port or other.port is null or own.port is null)
    and (
        (other.host = own.host and other.is_wildcard = own.is_wildcard)
        or (own.is_wildcard and right(other.host, length(own.host) + 1) = '.' || own.host)
        or (other.is_wildcard and right(own.host, length(other.host) + 1) = '.' || other.host)
    )
    and (other.is_wildcard, -length(other.host), other.port is null, other.scheme is null)
      < (own.is_wildcard, -length(own.host), own.port is null, own.scheme is null)
join tenants t on t.id = other.tenant_id
where mine.slug = $1 and own.domain = any ($2)
order by own.domain, t.slug, other.domain
limit 20
