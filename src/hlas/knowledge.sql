-- name: rank
-- The tenant's entries nearest to a visitor's words, best first, each with a confidence of 0 to 1:
-- how much of what the visitor said, weighted by how rare each word is, the entry speaks of.
-- Row-level security keeps text indexes from being used (their operators are not leakproof), so
-- a cheap look at all the tenant's entries picks the few that are compared word by word.
with scope as materialized (
    select set_config('app.tenant_id', $1::text, true)::uuid as tenant_id,
           knowledge_fold($2) as said
),
spoken as materialized (
    select word,
           array_remove(array[knowledge_stem(word), (ts_lexize('english_stem', word))[1]], null)
               as lexemes
    from (
        select distinct word
        from scope, regexp_split_to_table(said, '[^[:alnum:]]+') as word
        where length(word) > 1 and word <> all ($3::text[])
        order by word
        limit 40
    ) as words
),
asked as materialized (
    select word, to_tsquery('simple', array_to_string(lexemes, ':A | ') || ':A') as in_subject,
           to_tsquery('simple', array_to_string(lexemes, ' | ')) as anywhere
    from spoken
),
near as materialized (
    select k.*
    from scope s
    cross join lateral (
        select id, position, question, answer, language, subject, words
        from knowledge
        where tenant_id = s.tenant_id
        order by ts_rank('{0, 0, 0.3, 1}', words, any_of.query)
                 + knowledge_likeness(s.said, subject) desc
        limit 60
    ) as k
),
hit as materialized (
    select n.id, a.word, greatest(
               case when n.words @@ a.in_subject then 1 when n.words @@ a.anywhere then 0.6 else 0 end,
               least(1, (knowledge_likeness(a.word, n.subject) - 0.25) / 0.4)) as strength
    from near n cross join asked a
),
weight as materialized (
    select word, ln(1 + count(*) / (0.5 + count(*) filter (where strength >= 0.5))) as weight
    from hit
    group by word
)
select 1
