-- name: rank
-- The entries that match a visitor's text best, best first. Confidence is the share of the text's
-- words, weighted by their rarity, that the entry contains: 0 to 1, independent of length.
-- Row-level security prevents the use of text indexes (their operators are not leakproof), so a
-- cheap scan of the tenant's entries picks the few that are compared word by word.
-- The cost is bounded whatever the entries contain: likeness reads the first 200 characters of an
-- entry's question and keywords (it is quadratic in their words) and the first 100 of the text;
-- lexemes are looked up in all of it, by binary search.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id
),
-- Each word of the text: folded, and as the lexemes of both languages.
spoken as materialized (
    select word, array_remove(
               array[knowledge_stem(word), (ts_lexize('english_stem', word))[1]], null) as lexemes
    from (select distinct knowledge_fold(word) as word from unnest($2::text[]) as word) as folded
),
asked as materialized (
    select word, to_tsquery('simple', string_agg(quote_literal(lexeme) || ':A', ' | ')) as subject,
           to_tsquery('simple', string_agg(quote_literal(lexeme), ' | ')) as anywhere
    from spoken, unnest(lexemes) as lexeme
    group by word
),
said as materialized (
    select to_tsquery('simple', string_agg(quote_literal(lexeme), ' | ')) as anywhere,
           left(knowledge_fold(array_to_string($2::text[], ' ')), 100) as text
    from spoken, unnest(lexemes) as lexeme
),
near as materialized (
    -- ts_filter keeps all lexemes; it decompresses the vector once instead of once per word.
    select k.id, k.position, k.question, k.answer, k.language, k.subject,
           knowledge_overlap(said.text, k.subject) as overlap, ts_filter(k.words, '{a,b}') as words
    from scope s
    cross join said
    cross join lateral (
        select id, position, question, answer, language, words, left(subject, 200) as subject
        from knowledge
        where tenant_id = s.tenant_id
        order by ts_rank('{0, 0, 0.3, 1}', words, said.anywhere)
                 + knowledge_overlap(said.text, left(knowledge.subject, 200)) desc
        limit 60
    ) as k
),
-- Strength is 1 when the entry's question or keywords contain the word, and less when its answer
-- does or a similar word matches: a similarity of 1/2 is an inflection or a typo, 1/3 is chance.
hit as materialized (
    select n.id, a.word,
           case when n.words @@ a.subject then 1
                else greatest(case when n.words @@ a.anywhere then 0.6 else 0 end,
                              least(1, (knowledge_likeness(a.word, n.subject) - 0.3) / 0.35))
           end as strength
    from near n
    cross join asked a
),
-- A word that no entry contains is as often filler as it is the subject: it counts half.
weight as materialized (
    select word, ln(1 + entries / (0.5 + greatest(known, 1)))
                 * case when known = 0 then 0.5 else 1 end as weight
    from (
        select word, count(*) as entries, count(*) filter (where strength >= 0.5) as known
        from hit
        group by word
    ) as counted
),
covered as (
    select h.id, sum(w.weight * h.strength) / sum(w.weight) as share
    from hit h
    join weight w using (word)
    group by h.id
)
-- Rounded, so that the overlap decides between equal shares.
select n.id, n.question, n.answer,
       round((c.share * case when n.language <> $3 then 0.6 else 1 end)::numeric, 4)
           ::double precision as confidence
from covered c
join near n using (id)
order by confidence desc, n.overlap desc, n.position
limit $4

-- name: lock_tenant
-- Serialises imports; NO KEY UPDATE lets visitors' messages be inserted meanwhile.
select id from tenants where id = $1 for no key update

-- name: last_position
select coalesce(max(position), 0) from knowledge where tenant_id = $1

-- name: save_entries
-- An entry is identified by its question: saved again it keeps its id, unchanged it is not written.
insert into knowledge as k (tenant_id, id, position, question, answer, keywords, language)
select $1, e.id, e.position, e.question, e.answer, e.keywords, e.language
from jsonb_to_recordset($2) as e (
    id uuid, position integer, question text, answer text, keywords text[], language text)
on conflict (tenant_id, question) do update
set position = case when $3 then excluded.position else k.position end,
    answer = excluded.answer,
    keywords = excluded.keywords,
    language = excluded.language,
    updated_at = now()
where (k.answer, k.keywords) is distinct from (excluded.answer, excluded.keywords)
   or k.language is distinct from excluded.language
   or ($3 and k.position <> excluded.position)
returning k.created_at = k.updated_at as added

-- name: remove_others
delete from knowledge where tenant_id = $1 and question <> all ($2::text[])

-- name: measure_entries
select count(*) as entries,
       coalesce(sum(length(knowledge_subject(question, keywords)) + length(answer)), 0)::bigint
           as characters
from knowledge
where tenant_id = $1

-- name: list_entries
select id, question, answer, keywords, language, created_at, updated_at
from knowledge
where tenant_id = $1
order by position, id

-- name: remove_entries
delete from knowledge where tenant_id = $1 and id = any ($2::uuid[]) returning id, question

-- name: page_of_entries
select id, question, answer, keywords, language, created_at, updated_at
from knowledge
where tenant_id = $1 and ($2::uuid is null or id > $2)
order by id
limit $3

-- name: entry_by_id
select id, question, answer, keywords, language, created_at, updated_at
from knowledge
where tenant_id = $1 and id = $2

-- name: add_entry
insert into knowledge (tenant_id, id, position, question, answer, keywords, language)
select $1, $2, coalesce(max(position), 0) + 1, $3, $4, $5, $6 from knowledge where tenant_id = $1
returning id, question, answer, keywords, language, created_at, updated_at

-- name: lock_entry
select id from knowledge where tenant_id = $1 and id = $2 for no key update

-- name: update_entry
update knowledge
set question = $3, answer = $4, keywords = $5, language = $6, updated_at = now()
where tenant_id = $1 and id = $2
returning id, question, answer, keywords, language, created_at, updated_at
