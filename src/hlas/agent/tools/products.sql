-- name: find_products
-- The products that match a text best, best first: the one whose sku it is, else by words, as
-- entries are ranked (knowledge/entries.sql has the reasons). A score is the share of the words,
-- weighted by their rarity, that the product contains.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
),
spoken as materialized (
    select word, array_remove(
               array[knowledge_stem(word), (ts_lexize('english_stem', word))[1]], null) as lexemes
    from (select distinct knowledge_fold(word) as word from unnest($3::text[]) as word) as folded
),
asked as materialized (
    select word, to_tsquery('simple', string_agg(quote_literal(lexeme) || ':A', ' | ')) as subject,
           to_tsquery('simple', string_agg(quote_literal(lexeme), ' | ')) as anywhere
    from spoken, unnest(lexemes) as lexeme
    group by word
),
said as materialized (
    select to_tsquery('simple', string_agg(quote_literal(lexeme), ' | ')) as anywhere,
           left(knowledge_fold(array_to_string($3::text[], ' ')), 100) as text
    from spoken, unnest(lexemes) as lexeme
),
exact as materialized (
    select p.sku from scope s join products p on p.tenant_id = s.tenant_id
    where lower(p.sku) = lower($2)
    limit 1
),
near as materialized (
    select p.sku, left(p.subject, 200) as subject, p.words
    from scope s
    cross join said
    cross join lateral (
        select sku, subject, words
        from products
        where tenant_id = s.tenant_id
        order by ts_rank('{0, 0, 0.3, 1}', words, said.anywhere)
                 + knowledge_overlap(said.text, left(products.subject, 100)) desc
        limit 60
    ) as p
    where not exists (select from exact)
),
hit as materialized (
    select n.sku, a.word,
           case when n.words @@ a.subject then 1
                else greatest(case when n.words @@ a.anywhere then 0.6 else 0 end,
                              least(1, (knowledge_likeness(a.word, n.subject) - 0.3) / 0.35))
           end as strength
    from near n
    cross join asked a
),
weight as materialized (
    select word, ln(1 + products / (0.5 + greatest(known, 1)))
                 * case when known = 0 then 0.5 else 1 end as weight
    from (
        select word, count(*) as products, count(*) filter (where strength >= 0.5) as known
        from hit
        group by word
    ) as counted
),
found as (
    select sku, 1 as score from exact
    union all
    select h.sku, sum(w.weight * h.strength) / nullif(sum(w.weight), 0)
    from hit h
    join weight w using (word)
    group by h.sku
)
select p.sku, p.name, p.description, p.price, p.url, p.attributes
from found f
cross join scope s
join products p on p.tenant_id = s.tenant_id and p.sku = f.sku
where f.score >= $4
order by round(f.score::numeric, 4) desc, length(p.name), p.sku
limit $5

-- name: lock_tenant
-- Serialises imports; NO KEY UPDATE lets visitors' messages be inserted meanwhile.
select id from tenants where id = $1 for no key update

-- name: save_products
-- A product that is saved again unchanged is not written. xmax is 0 for a row that is new.
insert into products as p (tenant_id, sku, name, description, price, url, attributes)
select $1, e.sku, e.name, e.description, e.price, e.url, e.attributes
from jsonb_to_recordset($2) as e (
    sku text, name text, description text, price text, url text, attributes jsonb)
on conflict (tenant_id, sku) do update
set name = excluded.name,
    description = excluded.description,
    price = excluded.price,
    url = excluded.url,
    attributes = excluded.attributes,
    updated_at = now()
where (p.name, p.description, p.price, p.url, p.attributes)
      is distinct from
      (excluded.name, excluded.description, excluded.price, excluded.url, excluded.attributes)
returning p.xmax = 0 as added

-- name: remove_others
delete from products where tenant_id = $1 and sku <> all ($2::text[])

-- name: count_products
select count(*) from products where tenant_id = $1

-- name: page_of_products
select sku, name, description, price, url, attributes
from products
where tenant_id = $1 and sku > $2
order by sku
limit $3

-- name: remove_products
delete from products where tenant_id = $1 and sku = any ($2::text[]) returning sku, name
