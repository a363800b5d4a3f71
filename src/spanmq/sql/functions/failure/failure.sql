-- Failures: why messages failed, a row for each call and block of 256 ids.

-- Records a failure of messages: of those that are to be tried again after they were returned to the queue, of others
-- before they leave it. One row for those of a block that are alike, whatever their groups.
create or replace function spanmq_core.note_failure(
    this_queue int, ids bigint[], at_ timestamptz, outcome text, reason spanmq_core.reason
) returns void
language plpgsql as $$
begin
    insert into spanmq_core.failure (queue_id, lo, n, ids, attempt, failed_at, outcome, category, error, error_class,
                                     traceback, worker, retry_at)
        select this_queue, lower(g.ids), g.n, case when upper(g.ids) - lower(g.ids) > g.n then g.ids end, g.attempts,
               at_, outcome, reason.category, reason.error, reason.error_class, reason.traceback, reason.worker, g.vt
        from (select range_agg(int8range(u.msg_id, u.msg_id, '[]')) as ids, count(*)::int as n, u.attempts,
                     case when outcome = 'retrying' then u.vt end as vt
              from spanmq_core.unsettled u
              where u.queue_id = this_queue and u.msg_id = any (note_failure.ids)
              group by u.msg_id / 256, u.attempts, case when outcome = 'retrying' then u.vt end) g;
end $$;

-- The messages that failed.
create or replace function spanmq_core.ids_of(this spanmq_core.failure) returns int8multirange
language sql immutable as $$ select coalesce(this.ids, int8multirange(int8range(this.lo, this.lo + this.n))) $$;

-- The failures of one message that is in the queue, in order.
create or replace function spanmq_core.failures_of(this_queue int, id bigint) returns setof spanmq_core.failure
language sql stable rows 10 as $$
    select * from (
        select f.* from spanmq_core.failure f where f.queue_id = this_queue and f.lo = id and f.n = 1
        union all
        select f.* from spanmq_core.failure f
        where f.queue_id = this_queue and f.lo / 256 = id / 256 and f.n > 1 and f.lo <= id
          and spanmq_core.ids_of(f) @> id) f
    order by f.failed_at, f.attempt
$$;

-- The error of a message's last failure. Each receive asks for it, and a message without a limit of attempts may have
-- failed 100,000 times: only the last rows are read.
create or replace function spanmq_core.last_error(this_queue int, id bigint) returns text
language plpgsql stable as $$
declare
    own record;    -- a failure that is stored at its id
begin
    select coalesce(f.error, f.error_class, f.category) as error, f.failed_at into own
        from spanmq_core.failure f
        where f.queue_id = this_queue and f.lo = id and f.outcome <> 'cancelled'
        order by f.queue_id desc, f.lo desc, f.failed_at desc limit 1;
    -- A later one that it shares.
    return coalesce((
        select coalesce(f.error, f.error_class, f.category) from spanmq_core.failure f
        where f.queue_id = this_queue and f.lo / 256 = id / 256 and f.n > 1 and f.lo < id
          and f.failed_at > coalesce(own.failed_at, '-infinity') and f.outcome <> 'cancelled'
          and spanmq_core.ids_of(f) @> id
        order by f.queue_id desc, f.lo / 256 desc, f.failed_at desc limit 1), own.error);
end $$;

-- The failures of a message, the first one first, while it is in the queue or dead (the last failure then has the
-- outcome dead), and for a day after it was settled.
create or replace function spanmq_call.failures(queue text, msg_id bigint)
returns table (attempt integer, failed_at timestamptz, outcome text, category text, error text, error_class text,
               traceback text,
               worker text, retry_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    perform spanmq_core.find_queue(queue), spanmq_core.raise_if(failures.msg_id is null, 'msg_id cannot be NULL',
                                                                'Pass the id of a message.');
    return query
        select f.attempt, f.failed_at, f.outcome, f.category, f.error, f.error_class, f.traceback, f.worker, f.retry_at
        from spanmq_call.failures_between(queue, failures.msg_id, failures.msg_id) f order by f.failed_at, f.attempt;
end $$;

-- Deletes failures that are no longer needed, at most 10,000 a call: those older than 30 days, and those older than a
-- day whose block of ids has no message left in the queue. That a message was cancelled is known as long as its segment
-- exists. Checks them once a minute.
create or replace function spanmq_core.tidy_failures(this spanmq_core.queue) returns bigint
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    from_id bigint;
    looked_at int;
    last_id bigint;
    doomed tid[];
    n bigint;
begin
    select u.failures_to into from_id from spanmq_core.upkeep u where u.queue_id = this.queue_id
        and u.failures_at > at_ - interval '1 minute';
    if found and from_id = 0 then
        return 0;
    end if;
    from_id := coalesce(from_id, 0);
    select count(*), max(f.lo),
        array_agg(f.id) filter (where (f.failed_at < at_ - interval '30 days' or f.failed_at < at_ - interval '1 day'
                                                         and not spanmq_core.is_needed_by(this.queue_id,
                                                             f.lo - f.lo % 256, f.lo - f.lo % 256 + 255))
                                                        and (f.outcome <> 'cancelled'
                                                             or (spanmq_core.segment_of(this.queue_id, f.lo)).lo
                                                             is null))
        into looked_at, last_id, doomed
        from (select k.ctid as id, k.lo, k.failed_at, k.outcome from spanmq_core.failure k
              where k.queue_id = this.queue_id and k.lo >= from_id order by k.queue_id, k.lo limit 10000) f;
    delete from spanmq_core.failure f where f.ctid = any (doomed) and f.queue_id = this.queue_id
        and f.failed_at < at_ - interval '1 day';
    get diagnostics n = row_count;
    -- The rest of an id with more failures than one look takes in is left to the next round.
    last_id := case when looked_at = 10000 then greatest(last_id, from_id + 1) else 0 end;
    if looked_at > 0 then
        insert into spanmq_core.upkeep (queue_id, failures_to, failures_at) values (this.queue_id, last_id, at_)
            on conflict (queue_id) do update set failures_to = excluded.failures_to, failures_at = excluded.failures_at;
    end if;
    return n;
end $$;

-- Forgets the failures and expiries of messages up to an id, which a purge has deleted, and that it has: for state().
create or replace function spanmq_core.forget_failures(this_queue int, last_id bigint) returns void
language plpgsql as $$
begin
    -- But not of a message that was committed since the purge looked for the last time, nor of its neighbours: then
    -- maintain() does it.
    delete from spanmq_core.failure f
        where f.queue_id = this_queue and f.lo <= last_id
        and not spanmq_core.has_unsettled_in(this_queue, f.lo / 256 * 256, f.lo | 255);
    delete from spanmq_core.expiry e
        where e.queue_id = this_queue and e.msg_id <= last_id
        and not spanmq_core.has_unsettled_in(this_queue, e.msg_id / 256 * 256, e.msg_id | 255);
    insert into spanmq_core.upkeep (queue_id, purged_to) values (this_queue, last_id)
        on conflict (queue_id) do update set purged_to = greatest(spanmq_core.upkeep.purged_to, excluded.purged_to);
end $$;
