-- Reports of workers: which run, what they hold, and how long each kind of task took. For people and programs that
-- monitor queues; it decides nothing.

-- Reports that a worker runs for these queues since `running_for` seconds (null: it has stopped), with this number of
-- slots. It is listed for 60 seconds after its last report. `reports` has, by the name of the queue in lower case, an
-- object with `held`, the messages that the worker holds, `times`: what its handlers did since the last report, an
-- array of objects with kind, failed (true or false), bucket and n, where n handlers took up to 2^(bucket/2) ms, and
-- `progress`: how far running handlers are, an array of at most 100 objects with msg_id, kind (or null), share (0 to 1)
-- and note (up to 200 characters). A queue that does not exist is left out. Raises MQ002 for arguments out of range.
create or replace function spanmq_call.report_worker(
    queues text[], worker text, running_for double precision default null, slots integer default 0,
    reports jsonb default '{}'
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
    known_ids int[] := array(select q.queue_id from unnest(report_worker.queues) n join spanmq_core.queue q
                             on q.folded_name = lower(n));
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
        ' bucket (0 to 48) and n, and progress, '
        'an array of at most 100 objects with msg_id, kind, share (0 to 1) and note',
        'Such as {"orders": {"held": 2, "times": [{"kind": "ship", "failed": false, "bucket": 7, "n": 3}]}}.');
    delete from spanmq_core.worker w
        where w.ctid = any (array(select o.ctid from spanmq_core.worker o join unnest(known_ids) i on i = o.queue_id
                                  where o.seen_at < at_ - interval '60 seconds' or o.worker = report_worker.worker
                                  and running_for is null
                                  for update of o skip locked));
    if running_for is not null then
        insert into spanmq_core.worker (queue_id, worker, started_at, seen_at, slots, held, progress)
            select q.queue_id, report_worker.worker, at_ - make_interval(secs => running_for), at_, report_worker.slots,
                   coalesce((reports -> q.folded_name ->> 'held')::int, 0),
                   -- Of their keys only these: others have no limit.
                   coalesce((select jsonb_agg(to_jsonb(p))
                             from jsonb_to_recordset(reports -> q.folded_name -> 'progress') p
                             (msg_id bigint, kind text, share double precision, note text)), '[]')
            -- Held, so that none is dropped meanwhile.
            from (select * from spanmq_core.queue h where h.queue_id = any (known_ids) order by h.queue_id
                  for key share) q
            on conflict on constraint worker_pkey do update set seen_at = excluded.seen_at, slots = excluded.slots,
            held = excluded.held,
                progress = excluded.progress;
    end if;
    if exists (select from jsonb_each(reports) r where r.value ? 'times') then
        -- In order: two workers that report at once must not wait for each other crosswise.
        insert into spanmq_core.task_time as s (queue_id, kind, minute, has_failed, bucket, n)
            select q.queue_id, t.kind, date_trunc('minute', at_), t.failed, t.bucket, sum(t.n)
            from (select * from spanmq_core.queue h where h.queue_id = any (known_ids) order by h.queue_id
                  for key share) q
            cross join jsonb_to_recordset(reports -> q.folded_name -> 'times') t (kind text, failed boolean, bucket int,
                n bigint)
            group by q.queue_id, t.kind, t.failed, t.bucket order by q.queue_id, t.kind, t.failed, t.bucket
            on conflict on constraint task_time_pkey do update set n = s.n + excluded.n;
    end if;
end $$;

create or replace function spanmq_core.are_reports(reports jsonb) returns boolean
language plpgsql immutable as $$
begin
    return jsonb_typeof(reports) = 'object' and not exists (
        select from jsonb_each(reports) r
        where (jsonb_typeof(r.value) = 'object' and coalesce((r.value ->> 'held')::int, 0) >= 0
               and spanmq_core.are_times(r.value -> 'times')
               and spanmq_core.are_progress(r.value -> 'progress')) is not true);
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

-- The workers that have reported for these queues within a minute, a row for each queue, with the time until which
-- their circuit breaker is open, and what their handlers have reported of their progress: see report_worker().
create or replace function spanmq_call.list_workers(queues text[] default null)
returns table (worker text, queue text, started_at timestamptz, seen_at timestamptz, slots integer, held integer,
               breaker_open_until timestamptz, progress jsonb)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select w.worker, q.name::text, w.started_at, w.seen_at, w.slots, w.held, b.open_until, w.progress
    from spanmq_core.worker w join spanmq_core.queue q on q.queue_id = w.queue_id
    left join spanmq_core.breaker b on b.queue_id = w.queue_id and b.worker = w.worker
    and b.open_until > clock_timestamp()
    where w.seen_at > clock_timestamp() - interval '60 seconds'
      and (queues is null
           or q.folded_name operator(pg_catalog.=) any
           (array(select pg_catalog.lower(n) from pg_catalog.unnest(queues) n)))
    order by w.worker, q.name
$$;

-- The kinds of tasks that workers handled for these queues in the last `seconds`, up to a day: how many were done and
-- failed, and the seconds that half of them, and 95 of 100, took at most (about a sixth too long or too short).
create or replace function spanmq_call.list_task_kinds(queues text[] default null,
                                                       seconds double precision default 3600)
returns table (queue text, kind text, done bigint, failed bigint, p50 double precision, p95 double precision)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    with times as (
        select t.queue_id, t.kind, t.bucket, sum(t.n) as n, sum(t.n) filter (where not t.has_failed) as done
        from spanmq_core.task_time t join spanmq_core.queue q on q.queue_id = t.queue_id
        where t.minute > clock_timestamp() - make_interval(secs => least(greatest(seconds, 0), 86400))
          and (queues is null
               or q.folded_name operator(pg_catalog.=) any
               (array(select pg_catalog.lower(n) from pg_catalog.unnest(queues) n)))
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
