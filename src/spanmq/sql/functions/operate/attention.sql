-- What needs an operator's attention: the rows that the dashboard, doctor(), commands and notifications show.

-- Returns a row for each reason why a queue needs attention, the most urgent one of a queue first: for all queues into
-- which the caller may look, or for the named ones among them. A queue without a row needs no attention. level is
-- problem if messages are lost or not delivered for long, and warning otherwise. seconds is the time for which the
-- oldest visible message has waited, at the last sample, or now if nothing is received. Messages of a queue with few
-- messages are counted. For other queues the numbers are from the last sample, so the cost does not grow with the
-- number of messages.
--   no_worker       messages are visible, and no worker or other receiver takes any
--   stopped         messages have been visible for five minutes, workers run, and nothing is delivered
--   breaker_open    a worker receives nothing until `until`, because its circuit breaker is open; detail: why
--   dead_letters    n dead letters wait to be redriven or discarded; `recent` of them died within the last hour
--   blocked_groups  n groups wait for a dead letter, up to 1,000
--   failing         n messages failed and wait for another attempt, up to 1,000
--   paused          n messages wait until the queue is resumed
--   late            the oldest visible message has waited for more than five minutes
create or replace function spanmq_call.attention(queues text[] default null)
returns table (queue text, reason text, level text, n bigint, recent bigint, seconds double precision,
               until timestamptz, detail text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
    late_after constant double precision := 300;
    -- Counted: what is not known of the last sample to be empty still, and small.
    counted text[] := array(
        select q.name from spanmq_core.queue q left join spanmq_core.sample s on s.queue_id = q.queue_id
        where (queues is null or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n)))
            and coalesce(s.backlog, 0) <= 20000
            and (s.backlog > 0 or coalesce(s.drawn, 0) is distinct from spanmq_core.drawn_unless_gone(q))
        order by q.queue_id limit 2000);
begin
    return query
        with seen as (
            select l.*, coalesce(c.visible, l.visible) as now_visible, coalesce(c.backlog, l.backlog) as now_backlog,
                coalesce(c.in_flight, l.in_flight) as now_in_flight, q.queue_id as id
            from spanmq_call.latest_statistics(queues) l
            join spanmq_core.queue q on q.folded_name = lower(l.queue collate "C")
            left join spanmq_call.count_messages(
                counted, greatest(2000 / greatest(cardinality(counted), 10), 1)) c
                on c.queue = l.queue and c.backlog is not null),
        waiting as (
            select s.*, i.is_idle, case when s.now_visible > 0 then s.oldest_ready_seconds + case
                -- The oldest message has waited on since the sample.
                when i.is_idle then extract(epoch from at_ - s.sampled_at)::double precision else 0 end end
                as ready_seconds
            from seen s cross join lateral (
                select s.now_visible > 0 and not s.is_paused and s.received = 0 and s.now_in_flight = 0) i (is_idle))
        select w.queue, r.reason, r.level, r.n, r.recent, r.seconds, r.until, r.detail
        from waiting w cross join lateral (
            select 1 as place, 'no_worker' as reason,
                case when w.ready_seconds > late_after then 'problem' else 'warning' end as level,
                w.now_visible as n, null::bigint as recent, w.ready_seconds as seconds, null::timestamptz as until,
                null::text as detail
            where w.is_idle and w.workers = 0 and w.breaker_open_until is null
            union all
            select 2, 'stopped', 'problem', w.now_visible, null, w.ready_seconds, null, null
            where w.is_idle and w.workers > 0 and w.breaker_open_until is null and w.blocked_groups = 0
                and w.ready_seconds > late_after
            union all
            select 3, 'breaker_open', 'problem', w.now_visible, null, w.ready_seconds, w.breaker_open_until,
                left(w.breaker_error, 500)
            where w.breaker_open_until is not null
            union all
            select 4, 'dead_letters', case when d.recent > 0 then 'problem' else 'warning' end, w.dead_letters,
                d.recent, null, null, null
            from (select count(*) as recent from (
                      select from spanmq_core.dead_letter d
                      where w.dead_letters > 0 and d.queue_id = w.id and d.dead_at > at_ - interval '1 hour'
                          and d.redriven_at is null
                      order by d.queue_id, d.dead_at limit 10000) d) d
            where w.dead_letters > 0
            union all
            select 5, 'blocked_groups', 'problem', w.blocked_groups, null, null, null, null where w.blocked_groups > 0
            union all
            select 6, 'failing', 'warning', w.failing, null, null, null, null where w.failing > 0
            union all
            select 7, 'paused', 'warning', w.now_backlog, null, w.ready_seconds, null, null
            where w.is_paused and w.now_backlog > 0
            union all
            select 8, 'late', 'warning', w.now_visible, null, w.ready_seconds, null, null
            where not w.is_paused and w.ready_seconds > late_after
                and (not w.is_idle or w.breaker_open_until is not null or w.blocked_groups > 0)) r
        order by w.id, r.place;
end $$;
