-- Dead letters by their ids: for callers that have chosen them one by one, as the pipeline's job does.

-- The dead letters with these ids that were not redriven, in the order of their messages, locked to the end of the
-- transaction. Those that another transaction has locked are skipped. Raises MQ002 for more than 10,000.
create or replace function spanmq_core.lock_chosen(this spanmq_core.queue, dead_letter_ids bigint[]) returns setof spanmq_core.dead_letter
language plpgsql volatile as $$
declare
    runs bigint[];
begin
    if cardinality(dead_letter_ids) > 10000 then
        raise exception 'there can be at most 10000 dead letters in a call, got: %', cardinality(dead_letter_ids)
            using errcode = 'MQ002', hint = 'Call it again for the rest.';
    end if;
    -- For messages that died together, the row has the first of their consecutive ids.
    runs := array(select distinct id - id % 256 from unnest(dead_letter_ids) id);
    perform spanmq_core.write_chosen_runs(this, runs);
    if exists (select from spanmq_core.dead_run d where d.queue_id = this.queue_id and d.dead_letter_id = any (runs)) then
        -- Rows that maintain() is writing are not visible yet.
        perform spanmq_core.await_maintain();
        perform spanmq_core.write_chosen_runs(this, runs);
    end if;
    return query
        select d.* from spanmq_core.dead_letter d
        where d.dead_letter_id = any (dead_letter_ids) and d.queue_id = this.queue_id and d.redriven_at is null
        order by d.msg_id for update skip locked;
end $$;

create or replace function spanmq_core.write_chosen_runs(this spanmq_core.queue, runs bigint[]) returns bigint
language sql volatile as $$
    select spanmq_core.write_dead_letters(this, array(
        select d.dead_letter_id from spanmq_core.dead_run d
        where d.queue_id = this.queue_id and d.dead_letter_id = any (runs) order by d.lo for update skip locked))
$$;

-- Redrives these dead letters, as redrive() does, and returns their number: each waiting one once, also with concurrent
-- calls. Visible after `delay` seconds, or from then on `rate` a second. Raises 42P01 for an unknown queue, 42501
-- without the right to delete from it, MQ002.
create or replace function spanmq_call.redrive_chosen(
    queue text, dead_letter_ids bigint[], rate double precision default null, delay double precision default 0
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    visible_from timestamptz := spanmq_core.redrive_from(delay, rate);
    letters spanmq_core.revived[] := array(select spanmq_core.to_revive(d) from spanmq_core.lock_chosen(this, dead_letter_ids) d);
begin
    perform spanmq_core.revive(this, letters, visible_from, rate);
    return cardinality(letters);
end $$;

-- Deletes these dead letters for good, as purge_dead_letters() does, and returns how many: those that wait. Raises as redrive_chosen().
create or replace function spanmq_call.discard_chosen(queue text, dead_letter_ids bigint[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return spanmq_core.discard(this, array(select d.dead_letter_id from spanmq_core.lock_chosen(this, dead_letter_ids) d));
end $$;
