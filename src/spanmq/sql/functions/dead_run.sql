-- Messages that died together and are still one row (spanmq_core.dead_run): as dead letters, and on their way to rows of their own.

-- The dead letters of such a row.
create or replace function spanmq_core.letters_of(this spanmq_core.dead_run) returns setof spanmq_core.dead_letter
language plpgsql stable rows 100 as $$
begin
    return query
        select this.dead_letter_id + m.msg_id - this.lo, this.queue_id, m.msg_id, m.message, m.headers, spanmq_core.group_of(m.headers), this.priority,
               this.attempts, m.enqueued_at, this.first_failed_at, this.dead_at, this.dead_at, this.category, this.error, this.error_class,
               this.traceback, this.worker, this.history, null::timestamptz, null::bigint
        from spanmq_core.fetch(this.queue_id, array[(this.lo, this.n, this.ids, this.attempts, 0, null, null, null, null, null)::spanmq_core.run],
                          0, null, null, true) m;
end $$;

-- All dead letters that the messages first_id to last_id have become. Redriven and waiting ones have an index each, and no index has both.
create or replace function spanmq_core.letters_of_messages(this_queue int, first_id bigint, last_id bigint) returns setof spanmq_core.dead_letter
language plpgsql stable as $$
begin
    return query
        select * from spanmq_core.dead_letter w where w.queue_id = this_queue and w.msg_id between first_id and last_id and w.redriven_at is null
        union all
        select * from spanmq_core.dead_letter r where r.queue_id = this_queue and r.msg_id between first_id and last_id and r.redriven_at is not null
        union all
        select l.* from spanmq_core.dead_run t cross join lateral spanmq_core.letters_of(t) l
        where t.queue_id = this_queue and t.lo between first_id / 256 * 256 and last_id and l.msg_id between first_id and last_id;
end $$;

-- The row that a message is in, if it is in one.
create or replace function spanmq_core.dead_runs_of(this_queue int, id bigint) returns setof spanmq_core.dead_run
language plpgsql stable rows 1 as $$
begin
    return query
        select d.* from spanmq_core.dead_run d
        where d.queue_id = this_queue and d.lo between id - id % 256 and id and case when d.ids is null then id < d.lo + d.n else d.ids @> id end;
end $$;

-- How many messages of a queue died after this time.
create or replace function spanmq_core.count_died(this_queue int, after timestamptz) returns bigint
language plpgsql stable as $$
begin
    return (select count(*) from spanmq_core.dead_letter d where d.queue_id = this_queue and d.dead_at > after)
           + (select coalesce(sum(d.n), 0) from spanmq_core.dead_run d where d.queue_id = this_queue and d.dead_at > after);
end $$;

-- Locks the rows in which are the first qty messages by msg_id that fit all filters (as find_dead_letters), and returns their ids. Skips
-- what another is acting on, or (waits) waits for it.
create or replace function spanmq_core.lock_dead_runs(this_queue int, given spanmq_core.letter_filter, qty int, waits boolean) returns bigint[]
language plpgsql volatile as $$
declare
    fitting refcursor;
    lock_row text := format('select true from spanmq_core.dead_run r where r.dead_letter_id = $1 for update %s', case when not waits then 'skip locked' end);
    by_body boolean := num_nonnulls(given.payload, given.path, given.dead_letter_ids) > 0;
    together spanmq_core.dead_run;
    found_ids bigint[] := '{}';
    n bigint := 0;
    last_id bigint := 0;
    is_locked boolean;
    has_waited boolean := waits;
begin
    open fitting no scroll for execute format(
        'select r.* from spanmq_core.dead_run r where %s and (not $3 or exists (select from spanmq_core.letters_of(r) d where %s)) order by r.lo',
        spanmq_core.run_fits(), spanmq_core.letter_fits()) using this_queue, given, by_body;
    loop
        fetch fitting into together;
        -- Rows of one block lie between each other.
        exit when together.lo is null or n >= qty and together.lo > last_id;
        execute lock_row into is_locked using together.dead_letter_id;
        if is_locked is null and not has_waited then
            -- Rows that maintain() is writing are not visible yet.
            perform spanmq_core.await_maintain();
            has_waited := true;
            execute lock_row into is_locked using together.dead_letter_id;
        end if;
        continue when is_locked is null;
        found_ids := found_ids || together.dead_letter_id;
        n := n + case when by_body then 1 else together.n end;
        last_id := together.lo | 255;
    end loop;
    close fitting;
    return found_ids;
end $$;

-- Writes these (null: the oldest four that are free) as rows of spanmq_core.dead_letter. Waits for transactions that have locked one of
-- them. Returns the number of rows.
create or replace function spanmq_core.write_dead_letters(this spanmq_core.queue, dead_letter_ids bigint[]) returns bigint
language plpgsql volatile as $$
declare
    together spanmq_core.dead_run;
    written bigint := 0;
    n bigint;
begin
    dead_letter_ids := coalesce(dead_letter_ids, array(
        select d.dead_letter_id from spanmq_core.dead_run d where d.queue_id = this.queue_id order by d.queue_id, d.lo limit 4 for update skip locked));
    for together in delete from spanmq_core.dead_run d where d.dead_letter_id = any (dead_letter_ids) returning d.* loop
        insert into spanmq_core.dead_letter (dead_letter_id, queue_id, msg_id, message, headers, group_key, priority, attempts, enqueued_at,
                                        first_failed_at, last_failed_at, dead_at, category, error, error_class, traceback, worker, history,
                                        redriven_at, redriven_as)
            select l.* from spanmq_core.letters_of(together) l;
        get diagnostics n = row_count;
        written := written + n;
        if n < together.n then
            insert into spanmq_core.dead_letter_count (queue_id, category, n) values (this.queue_id, together.category, n - together.n);
            perform spanmq_core.settle_missing(this, array[(together.lo, together.n, together.ids, 0, 0, null, null, null, null, null)::spanmq_core.run]);
        end if;
    end loop;
    return written;
end $$;
