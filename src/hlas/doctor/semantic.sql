-- name: count_vectors
select count(*)::integer as entries,
       (count(*) filter (where v.model = $1 and v.version = k.version))::integer as done
from knowledge k
left join knowledge_vectors v on v.tenant_id = k.tenant_id and v.entry_id = k.id
