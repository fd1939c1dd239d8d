-- name: add_evaluation
insert into evaluations (tenant_id, id, source, result) values ($1, $2, $3, $4)

-- name: forget_evaluations
delete from evaluations
where tenant_id = $1 and id not in (
    select id from evaluations where tenant_id = $1 order by id desc limit $2)

-- name: list_evaluations
select result, created_at from evaluations where tenant_id = $1 order by id desc
