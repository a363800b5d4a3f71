-- The last sample of each queue on which the caller has look, and the current values that can be read at a fixed cost.
-- The cost does not depend on the number of messages, so monitoring may call it every few seconds.
--   sent_total              ids drawn up to now: a counter that only rises
--   dead_letters            dead letters that wait now
--   sampled_at              when maintain() last took a sample; null: never. Counts are of the duration_seconds before
--                           it, and 0 if that
--                           was long ago and the queue was empty: an idle queue is not sampled
--   workers                 workers that have reported within a minute; receivers of other programs do not report
--   blocked_groups          groups that wait for a dead letter, up to 1,000
--   failing                 messages that failed and wait for another attempt, up to 1,000
--   oldest_snapshot_seconds  as in health(): the same in each row
--   breaker_error           why the circuit breaker of a worker is open
create or replace function spanmq_call.latest_statistics(queues text[] default null)
returns table (queue text, is_paused boolean, sent_total bigint, dead_letters bigint, sampled_at timestamptz,
               duration_seconds double precision,
               sent bigint, received bigint, settled bigint, failed bigint, dead bigint, backlog bigint, visible bigint,
               in_flight bigint,
               oldest_ready_seconds double precision, breaker_open_until timestamptz, workers bigint,
               blocked_groups bigint,
               failing bigint, oldest_snapshot_seconds double precision, breaker_error text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select q.name,
           exists (select from spanmq_core.policy p where p.queue_id = q.queue_id and p.paused),
           d.drawn,
           (select coalesce(sum(c.n), 0)::bigint from spanmq_core.dead_letter_count c where c.queue_id = q.queue_id),
           s.sampled_at, s.seconds,
           case when r.is_recent then s.sent else 0 end, case when r.is_recent then s.received else 0 end,
           case when r.is_recent then s.settled else 0 end, case when r.is_recent then s.failed else 0 end,
           case when r.is_recent then s.dead else 0 end,
           coalesce(s.backlog, 0), coalesce(s.visible, 0), coalesce(s.in_flight, 0), s.oldest_ready_seconds,
           spanmq_core.breaker_open_until(q.queue_id),
           (select count(*) from spanmq_core.worker w where w.queue_id = q.queue_id
            and w.seen_at > clock_timestamp() - interval '60 seconds'),
           (select count(*) from (
                select from spanmq_core.blocked_group b where b.queue_id = q.queue_id
                  and exists (select from spanmq_core.policy p where p.queue_id = q.queue_id
                              and p.dead_letter_blocks_group)
                group by b.group_hash order by b.group_hash limit 1000) g),
           (select count(*) from (
                select from spanmq_core.later h where h.queue_id * 1 = q.queue_id and h.lease_id = 0
                    and h.attempts > 0
                order by h.queue_id * 1, h.msg_id limit 1000) f),
           greatest(extract(epoch from clock_timestamp() - o.snapshot_at), 0)::double precision,
           spanmq_core.breaker_error(q.queue_id)
    from spanmq_core.queue q
    cross join (select spanmq_core.oldest_snapshot_at() as snapshot_at offset 0) o
    left join lateral (select * from spanmq_core.statistics t where t.queue_id = q.queue_id order by t.sampled_at desc
                       limit 1) s on true
    cross join lateral (select spanmq_core.drawn_unless_gone(q) as drawn offset 0) d
    cross join lateral (select coalesce(s.backlog > 0 or s.sampled_at > clock_timestamp() - interval '3 minutes', false)
                        as is_recent) r
    where d.drawn is not null
      and (queues is null
           or q.folded_name operator(pg_catalog.=) any
           (array(select pg_catalog.lower(n collate pg_catalog."C") from pg_catalog.unnest(queues) n)))
    order by q.queue_id
$$;
