-- since 0.1.0
-- Which dead letters of a queue; a field that is null: any. Made and checked by letter_filter().
create type spanmq_core.letter_filter as (
    category text,
    error text,
    error_class text,
    since timestamptz,
    until timestamptz,
    payload jsonb,
    path jsonpath,
    dead_letter_ids bigint[],
    redriven boolean
);
