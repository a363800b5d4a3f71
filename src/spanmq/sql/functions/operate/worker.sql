-- Reports of workers: which run, what they hold, and how long each kind of task took. For people and programs that
-- monitor queues; it decides nothing.

-- Reports that a worker has run for these queues for `running_for` seconds (null: it has stopped), with this number of
-- slots. It is listed for 60 seconds after its last report. Returns the commands for the worker: close_breaker and
-- stacks for a queue, in lower case (see close_breaker()), and stop, with null for the queue (see stop_worker()). A
-- queue that does not exist is left out, and so are workers and breakers of a queue beyond 1,000, and times beyond
-- 10,000 of a minute. Raises MQ002 for arguments out of range. `reports` has an object for each queue, by its name in
-- lower case, with these members:
--   held      the number of messages that the worker holds
--   times     the handlers that have ended since the last report: an array of objects with kind, failed (true or
--             false), bucket and n. n handlers took up to 2^(bucket/2) ms
--   progress  the progress of running handlers: at most 100 objects with msg_id, kind (or null), share (0 to 1) and
--             note (up to 200 characters)
--   breaker   while its circuit breaker is open: an object with open_for (seconds from now, up to 86400), opening (a
--             number that the worker draws each time that the breaker opens) and error
--   slow      handlers that take unusually long: at most 100 objects with msg_id, kind and seconds
--   stacks    if they were asked for (see ask_stacks()): at most 20 running handlers, as objects like those of slow,
--             with stack (up to 8,000 characters)
create or replace function spanmq_call.report_worker(
    queues text[], worker text, running_for double precision default null, slots integer default 0,
    reports jsonb default '{}'
) returns table (queue text, command text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
    known_ids int[] := array(select q.queue_id from unnest(report_worker.queues) n join spanmq_core.queue q
                             on q.folded_name = lower(n collate "C"));
begin
    perform spanmq_core.raise_if(report_worker.worker is null or octet_length(report_worker.worker) not between 1
                                 and 1000,
        format('worker must be a name of 1 to 1000 bytes, got: %s', coalesce(left(report_worker.worker, 100), 'NULL')),
        'Pass the name that the worker has in its failures.');
    perform spanmq_core.raise_if(not (running_for between 0 and 1e9) or report_worker.slots is null
                                 or report_worker.slots < 0,
        format('running_for and slots cannot be negative, got: %L and %s', running_for, report_worker.slots),
        'running_for is null for a worker that has stopped.');
    perform spanmq_core.raise_if(spanmq_core.are_reports(reports) is not true,
        'reports must be an object of objects with held, times, an array of at most 5000 objects with kind, failed,'
        ' bucket (0 to 48) and n, progress, an array of at most 100 objects with msg_id, kind, share (0 to 1) and note,'
        ' slow and stacks, arrays of at most 100 and 20 objects with msg_id, kind, seconds, and stack,'
        ' and breaker, an object with open_for (0 to 86400), opening and error',
        'Such as {"orders": {"held": 2, "times": [{"kind": "ship", "failed": false, "bucket": 7, "n": 3}]}}.');
    delete from spanmq_core.worker w
        where w.ctid = any (array(select o.ctid from spanmq_core.worker o join unnest(known_ids) i on i = o.queue_id
                                  where o.seen_at < at_ - interval '60 seconds' or o.worker = report_worker.worker
                                  and running_for is null
                                  for update of o skip locked));
    if running_for is not null then
        insert into spanmq_core.worker as w (queue_id, worker, started_at, seen_at, slots, held, progress, slow)
            select q.queue_id, report_worker.worker, at_ - make_interval(secs => running_for), at_, report_worker.slots,
                   coalesce((reports -> q.folded_name ->> 'held')::int, 0),
                   -- Of their keys only these: others have no limit.
                   coalesce((select jsonb_agg(to_jsonb(p))
                             from jsonb_to_recordset(reports -> q.folded_name -> 'progress') p
                             (msg_id bigint, kind text, share double precision, note text)), '[]'),
                   coalesce((select jsonb_agg(to_jsonb(p))
                             from jsonb_to_recordset(reports -> q.folded_name -> 'slow') p
                             (msg_id bigint, kind text, seconds double precision)), '[]')
            -- Held, so that none is dropped meanwhile.
            from (select * from spanmq_core.queue h where h.queue_id = any (known_ids) order by h.queue_id
                  for key share) q
            -- A role that may receive makes up names as it likes: it fills no table with them.
            where (select count(*) from (select from spanmq_core.worker o where o.queue_id = q.queue_id
                                         limit 1000) few) < 1000
               or exists (select from spanmq_core.worker o
                          where o.queue_id = q.queue_id and o.worker = report_worker.worker)
            on conflict on constraint worker_pkey do update
                set seen_at = excluded.seen_at, slots = excluded.slots, held = excluded.held,
                    progress = excluded.progress, slow = excluded.slow,
                    -- One that has begun since that of its name was asked to stop is another one.
                    started_at = case when excluded.started_at > (
                        select max(s.asked_at) from spanmq_core.worker_stop s where s.worker = w.worker)
                        then excluded.started_at else w.started_at end;
    end if;
    if exists (select from jsonb_each(reports) r where r.value ? 'times') then
        -- In order: two workers that report at once must not wait for each other crosswise.
        insert into spanmq_core.task_time as s (queue_id, kind, minute, has_failed, bucket, n)
            select q.queue_id, t.kind, date_trunc('minute', at_), t.failed, t.bucket, sum(t.n)
            from (select * from spanmq_core.queue h where h.queue_id = any (known_ids) order by h.queue_id
                  for key share) q
            cross join jsonb_to_recordset(reports -> q.folded_name -> 'times') t (kind text, failed boolean, bucket int,
                n bigint)
            where (select count(*) from (select from spanmq_core.task_time o
                                         where o.queue_id = q.queue_id and o.minute = date_trunc('minute', at_)
                                         limit 10000) few) < 10000
            group by q.queue_id, t.kind, t.failed, t.bucket order by q.queue_id, t.kind, t.failed, t.bucket
            on conflict on constraint task_time_pkey do update set n = s.n + excluded.n;
    end if;
    perform spanmq_core.keep_stacks(q.queue_id, report_worker.worker, reports -> q.folded_name -> 'stacks', at_)
        from spanmq_core.queue q
        where running_for is not null and q.queue_id = any (known_ids) and reports -> q.folded_name ? 'stacks';
    return query
        select unnest(spanmq_core.report_breakers(
            known_ids, report_worker.worker, case when running_for is null then '{}' else reports end, at_)),
            'close_breaker'
        union all
        select q.folded_name, 'stacks' from spanmq_core.worker w join spanmq_core.queue q on q.queue_id = w.queue_id
            where w.queue_id = any (known_ids) and w.worker = report_worker.worker
              and w.stacks_asked_at > greatest(coalesce(w.stacks_at, '-infinity'), at_ - interval '60 seconds')
        union all
        -- Not what was asked of an earlier worker of this name.
        select null, 'stop' where exists (
            select from spanmq_core.worker_stop s
            where s.worker = report_worker.worker and s.asked_at > at_ - make_interval(secs => running_for));
end $$;

-- Asks the workers of this name to stop, as SIGTERM does: they receive no more messages, finish those that they
-- handle, return the rest, and end. A worker learns this with its next report: at once if notifications reach it,
-- otherwise within 20 seconds. Returns the number of queues for which such a worker is listed; 0: no worker has this
-- name. A supervisor may start the worker again.
create or replace function spanmq_call.stop_worker(worker text) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    at_ timestamptz := clock_timestamp();
    ids int[] := array(select w.queue_id from spanmq_core.worker w
                       where w.worker = stop_worker.worker and w.seen_at > at_ - interval '60 seconds');
begin
    delete from spanmq_core.worker_stop s
        where s.ctid = any (array(select o.ctid from spanmq_core.worker_stop o
                                  where not exists (select from spanmq_core.worker w where w.worker = o.worker)
                                  for update skip locked));
    if ids <> '{}' then
        insert into spanmq_core.worker_stop (worker, asked_at) values (worker, at_);
    end if;
    -- 0: no queue's number. The workers report, and the listeners of other programs register again.
    perform spanmq_core.notify_channel(l.channel, '0')
        from spanmq_core.listener l where l.channel is not null and l.expires_at > at_ and l.queue_ids && ids;
    return cardinality(ids);
end $$;

create or replace function spanmq_core.are_reports(reports jsonb) returns boolean
language plpgsql immutable as $$
begin
    return jsonb_typeof(reports) = 'object' and not exists (
        select from jsonb_each(reports) r
        where (jsonb_typeof(r.value) = 'object' and coalesce((r.value ->> 'held')::int, 0) >= 0
               and spanmq_core.are_times(r.value -> 'times')
               and spanmq_core.are_progress(r.value -> 'progress')
               and spanmq_core.are_handlers(r.value -> 'slow', 100)
               and spanmq_core.are_handlers(r.value -> 'stacks', 20)
               and spanmq_core.is_breaker(r.value -> 'breaker')) is not true);
exception when data_exception then
    return false;
end $$;

-- Whether these are times for report_worker(); null is.
create or replace function spanmq_core.are_times(times jsonb) returns boolean
language plpgsql immutable as $$
begin
    return times is null or jsonb_typeof(times) = 'array' and jsonb_array_length(times) <= 5000 and not exists (
        select from jsonb_to_recordset(times) t (kind text, failed boolean, bucket int, n bigint)
        where (octet_length(t.kind) <= 255 and t.failed is not null and t.bucket between 0 and 48 and t.n between 1
               and 1000000000) is not true);
exception when data_exception then
    return false;
end $$;

-- Whether these are the progress of handlers, for report_worker(); null is.
create or replace function spanmq_core.are_progress(progress jsonb) returns boolean
language plpgsql immutable as $$
begin
    return progress is null or jsonb_typeof(progress) = 'array' and jsonb_array_length(progress) <= 100 and not exists (
        select from jsonb_to_recordset(progress) p (msg_id bigint, kind text, share double precision, note text)
        where (coalesce(octet_length(p.kind), 0) <= 255 and p.msg_id is not null and p.share between 0 and 1
               and char_length(p.note) <= 200) is not true);
exception when data_exception then
    return false;
end $$;

-- Whether these are running handlers, up to `most`, for report_worker(); null is.
create or replace function spanmq_core.are_handlers(handlers jsonb, most int) returns boolean
language plpgsql immutable as $$
begin
    return handlers is null or jsonb_typeof(handlers) = 'array' and jsonb_array_length(handlers) <= most
        and not exists (
        select from jsonb_to_recordset(handlers) h (msg_id bigint, kind text, seconds double precision, stack text)
        where (coalesce(octet_length(h.kind), 0) <= 255 and h.msg_id is not null and h.seconds between 0 and 1e9
               and char_length(coalesce(h.stack, '')) <= 8000) is not true);
exception when data_exception then
    return false;
end $$;

-- The workers that have reported for these queues within a minute, a row for each queue, with the time until which
-- their circuit breaker is open, and its reason, what their handlers have reported of their progress (see
-- report_worker()), when they were asked to stop (see stop_worker()), and which of their handlers took unusually long
-- when they reported.
create or replace function spanmq_call.list_workers(queues text[] default null)
returns table (worker text, queue text, started_at timestamptz, seen_at timestamptz, slots integer, held integer,
               breaker_open_until timestamptz, progress jsonb, breaker_error text, stop_asked_at timestamptz,
               slow jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select w.worker, q.name::text, w.started_at, w.seen_at, w.slots, w.held,
        case when b.open_until is not null then greatest(b.open_until, clock_timestamp()) end, w.progress, b.error,
        (select max(s.asked_at) from spanmq_core.worker_stop s
         where s.worker = w.worker and s.asked_at > w.started_at), w.slow
    from spanmq_core.worker w join spanmq_core.queue q on q.queue_id = w.queue_id
    left join spanmq_core.breaker b on b.queue_id = w.queue_id and b.worker = w.worker
    and spanmq_core.is_open(b)
    where w.seen_at > clock_timestamp() - interval '60 seconds'
      and (queues is null
           or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n)))
    order by w.worker, q.name
$$;

-- The kinds of tasks that workers handled for these queues in the last `seconds`, up to a day, with the numbers of
-- those done and failed. p50 and p95 are the seconds that half of them, and 95 of 100, took at most. They are exact to
-- about a sixth.
create or replace function spanmq_call.list_task_kinds(queues text[] default null,
                                                       seconds double precision default 3600)
returns table (queue text, kind text, done bigint, failed bigint, p50 double precision, p95 double precision)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    with times as (
        select t.queue_id, t.kind, t.bucket, sum(t.n) as n, sum(t.n) filter (where not t.has_failed) as done
        from spanmq_core.task_time t join spanmq_core.queue q on q.queue_id = t.queue_id
        where t.minute > clock_timestamp() - make_interval(secs => least(greatest(seconds, 0), 86400))
          and (queues is null
               or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n)))
        group by t.queue_id, t.kind, t.bucket),
    sums as (
        select t.*, sum(t.n) over (partition by t.queue_id, t.kind order by t.bucket) as n_to,
            sum(t.n) over (partition by t.queue_id, t.kind) as n_all
        from times t)
    select q.name::text, s.kind, coalesce(sum(s.done), 0)::bigint, (sum(s.n) - coalesce(sum(s.done), 0))::bigint,
           -- The middle of the bucket.
           0.001 * power(2, (min(s.bucket) filter (where s.n_to >= s.n_all * 0.5) - 0.5) / 2),
           0.001 * power(2, (min(s.bucket) filter (where s.n_to >= s.n_all * 0.95) - 0.5) / 2)
    from sums s join spanmq_core.queue q on q.queue_id = s.queue_id
    group by q.name, s.kind order by q.name, s.kind
$$;

-- Returns the outcomes of a kind of task in a queue over the last `seconds`, up to a day, in steps of `step` seconds
-- (whole minutes) up to a minute ago: later reports are not complete. Oldest first: how many were done and failed in
-- each step, and the seconds as in list_task_kinds(), null where none ended. Raises MQ002 for an invalid number.
create or replace function spanmq_call.task_statistics(
    queue text, kind text, seconds double precision default 3600, step double precision default 60
) returns table (began_at timestamptz, done bigint, failed bigint, p50 double precision, p95 double precision)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    step_ double precision := step;
    last_step bigint;
    n_steps bigint;
begin
    perform spanmq_core.raise_if((seconds > 0 and seconds <= 86400) is not true,
        format('seconds must be above 0 and at most 86400, got: %L', seconds), 'Times are kept for a day.');
    perform spanmq_core.raise_if((step >= 60 and step <= 86400 and step / 60 = floor(step / 60)) is not true,
        format('step must be whole minutes up to a day, in seconds, got: %L', step), 'Such as 60 or 900.');
    last_step := floor((extract(epoch from clock_timestamp()) - 60) / step) - 1;
    n_steps := ceil(seconds / step);
    return query
        with times as (
            select floor(extract(epoch from t.minute) / step_)::bigint as place, t.bucket, sum(t.n) as n,
                sum(t.n) filter (where t.has_failed) as n_failed
            from spanmq_core.task_time t
            where t.queue_id = this.queue_id and t.kind = task_statistics.kind
                and t.minute >= to_timestamp((last_step - n_steps + 1) * step_)
            group by 1, 2),
        sums as (
            select t.*, sum(t.n) over (partition by t.place order by t.bucket) as n_to,
                sum(t.n) over (partition by t.place) as n_all
            from times t)
        select to_timestamp(p.place * step_), (coalesce(sum(s.n), 0) - coalesce(sum(s.n_failed), 0))::bigint,
               coalesce(sum(s.n_failed), 0)::bigint,
               -- The middle of the bucket.
               0.001::float8 * power(2, (min(s.bucket) filter (where s.n_to >= s.n_all * 0.5) - 0.5::float8) / 2),
               0.001::float8 * power(2, (min(s.bucket) filter (where s.n_to >= s.n_all * 0.95) - 0.5::float8) / 2)
        from generate_series(last_step - n_steps + 1, last_step) p (place) left join sums s on s.place = p.place
        group by p.place order by p.place;
end $$;
