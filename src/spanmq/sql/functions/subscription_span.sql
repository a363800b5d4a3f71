-- twin: unlogged
-- Spans of subscriptions.

-- Publishes to a new subscription what is unsettled in its queue: ready, or waiting for the delay that it was sent with.
create or replace function spanmq.copy_spans(from_queue int, to_queue int, at_ timestamptz) returns void
language plpgsql as $$
begin
    insert into spanmq.span (queue_id, lo, n, ids, state, vt, group_hash, group_key, priority)
        select to_queue, lower(m.ids), spanmq.count_ids(m.ids), spanmq.run_ids(m.ids), case when m.is_delayed then 'w' else 'r' end::"char",
               case when m.is_delayed then s.vt end, s.group_hash, s.group_key, s.priority
        from spanmq.span s
        cross join lateral (
            select spanmq.ids_of(s.lo, s.n, s.ids)
                       - coalesce((select range_agg(int8range(x.msg_id, x.msg_id, '[]')) from spanmq.settled x
                                   where x.queue_id = from_queue and x.lease_id = s.lease_id and s.lease_id <> 0
                                     and x.msg_id between s.lo and s.lo | 255), '{}') as ids,
                   s.state = 'w' and s.attempts = 0 and s.vt > at_ as is_delayed
            offset 0) m
        where s.queue_id = from_queue and not isempty(m.ids);
end $$;
