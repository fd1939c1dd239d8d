-- name: limit_overrides
-- The few tenants with limits of their own; a partial index keeps this cheap among many.
select id::text as id, limits from tenants where limits <> '{}'
