-- name: write
-- One statement per batch; the function is in write_messages.sql.
select * from write_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
