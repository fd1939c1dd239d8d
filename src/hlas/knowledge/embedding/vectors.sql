-- name: last_version
-- Changes with every entry and every vector.
select pg_sequence_last_value('knowledge_versions') as version

-- name: tenants_without_vectors
select k.tenant_id, count(*)::integer as entries
from knowledge k
left join knowledge_vectors v on v.tenant_id = k.tenant_id and v.entry_id = k.id
where v.entry_id is null or v.model <> $1 or v.version <> k.version
group by k.tenant_id
limit $2

-- name: claim_entries
-- Claimed for as long as $4 says: nobody else makes the same vectors meanwhile.
with due as (
    select k.id
    from knowledge k
    left join knowledge_vectors v on v.tenant_id = k.tenant_id and v.entry_id = k.id
    where k.tenant_id = $1
      and (v.entry_id is null or v.model <> $2 or v.version <> k.version)
      and (v.claimed_at is null or v.claimed_at < now() - $4::interval)
    order by k.version
    limit $3
    for update of k skip locked
), claimed as (
    insert into knowledge_vectors as c (
        tenant_id, entry_id, model, version, number, vectors, claimed_at)
    select $1, due.id, '', 0, 0, '{}', now() from due
    on conflict (tenant_id, entry_id) do update
    set claimed_at = now()
    where c.claimed_at is null or c.claimed_at < now() - $4::interval
    returning entry_id
)
select k.id, k.version, k.question, k.answer, k.keywords, k.language, k.kind, k.wordings, k.url
from claimed c
join knowledge k on k.tenant_id = $1 and k.id = c.entry_id

-- name: lock_knowledge
-- The lock of entries.sql, without waiting: an import may hold it for long.
select pg_try_advisory_xact_lock(hashtextextended('knowledge ' || $1, 0))

-- name: save_vectors
update knowledge_vectors
set model = $3, version = $4, number = nextval('knowledge_versions'), vectors = $5,
    claimed_at = null
where tenant_id = $1 and entry_id = $2

-- name: release_entries
update knowledge_vectors set claimed_at = null where tenant_id = $1 and entry_id = any ($2::uuid[])
