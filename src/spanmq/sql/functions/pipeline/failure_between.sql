-- Failures in bulk, for the pipeline: those of a range of messages; failures() returns those of one.

-- The failures of the messages first_id to last_id of a queue, in no order: of those that are in the queue, of dead
-- ones (the last has the outcome dead), and for a day after they were settled; each once, though every death of a
-- message includes those before it. No error is cut.
create or replace function spanmq_call.failures_between(queue text, first_id bigint, last_id bigint)
returns table (msg_id bigint, attempt integer, failed_at timestamptz, outcome text, category text, error text,
               error_class text,
               traceback text, worker text, retry_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    -- A message may have become a dead letter before, and been redriven: from the history of each dead letter, and from
    -- the failures after the last, the part that no earlier one contains.
    return query
        with deaths as materialized (
            select d.dead_letter_id, d.msg_id, d.attempts, d.last_failed_at, d.dead_at, d.category, d.error,
                d.error_class, d.traceback,
                   d.worker, d.history, lag(d.dead_at) over (partition by d.msg_id order by d.dead_letter_id)
                   as died_before
            from spanmq_core.letters_of_messages(this.queue_id, first_id, last_id) d),
        last_deaths as materialized (
            select d.msg_id, max(d.dead_at) as dead_at from deaths d group by d.msg_id)
        select d.msg_id, h.attempt, h.failed_at, h.outcome, h.category, h.error, h.error_class, h.traceback, h.worker,
        h.retry_at
        from deaths d, jsonb_to_recordset(d.history) h (attempt int, failed_at timestamptz, outcome text, category text,
                                                        error text,
                                                        error_class text, traceback text, worker text,
                                                        retry_at timestamptz)
        where d.died_before is null or h.failed_at > d.died_before
        union all
        select d.msg_id, d.attempts, d.last_failed_at, 'dead', d.category, d.error, d.error_class, d.traceback,
        d.worker, null
        from deaths d
        union all
        select e.id, f.attempt, f.failed_at, f.outcome, f.category, f.error, f.error_class, f.traceback, f.worker,
        f.retry_at
        from spanmq_core.failure f
        cross join lateral unnest(spanmq_core.ids_of(f)) r
        cross join lateral generate_series(lower(r), upper(r) - 1) e (id)
        left join last_deaths l on l.msg_id = e.id
        -- A failure of several messages is stored at the first of them, within the same 256 ids.
        where f.queue_id = this.queue_id and f.lo between first_id / 256 * 256 and last_id and e.id between first_id
        and last_id
          and f.outcome <> 'cancelled' and f.failed_at > coalesce(l.dead_at, '-infinity');
end $$;

-- The lowest and the highest id of a message of the queue that has failures; nulls if none has.
create or replace function spanmq_call.failure_extent(queue text) returns table (first_id bigint, last_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select min(x.lo), max(x.hi) from (
            (select f.lo, f.lo as hi from spanmq_core.failure f where f.queue_id = this.queue_id order by f.lo limit 1)
            union all
            -- Those that it shares are of the same 256 ids.
            (select f.lo, f.lo | 255 from spanmq_core.failure f where f.queue_id = this.queue_id order by f.lo desc
             limit 1)
            union all
            select min(d.msg_id), max(d.msg_id) from spanmq_core.dead_letter d where d.queue_id = this.queue_id
            and d.redriven_at is null
            union all
            select min(d.msg_id), max(d.msg_id) from spanmq_core.dead_letter d where d.queue_id = this.queue_id
            and d.redriven_at is not null) x;
end $$;
