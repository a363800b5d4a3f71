-- Dead letters in bulk, for the pipeline: those of a range of dead_letter_ids, where dead_letters() gives pages.

-- The dead letters first_id to last_id of a queue, in no order, also those that were redriven.
create or replace function spanmq_call.dead_letters_between(
    queue text, first_id bigint, last_id bigint
) returns setof spanmq_core.dead_letter
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select d.* from spanmq_core.dead_letter d
        where d.queue_id = this.queue_id and d.dead_letter_id between first_id and last_id;
end $$;

-- The lowest and the highest dead_letter_id of a queue; nulls if it has none.
create or replace function spanmq_call.dead_letter_extent(queue text) returns table (first_id bigint, last_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select min(d.dead_letter_id), max(d.dead_letter_id) from spanmq_core.dead_letter d
        where d.queue_id = this.queue_id;
end $$;
