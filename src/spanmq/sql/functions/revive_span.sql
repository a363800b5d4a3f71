-- twin: unlogged
-- Spans of messages that come back from the dead letters.

-- Publishes them again, each visible at its own time, never delivered as yet.
create or replace function spanmq.insert_revived(
    this_queue int, letters spanmq.revived[], visible_from timestamptz, rate double precision, at_ timestamptz
) returns void
language plpgsql as $$
begin
    insert into spanmq.span (queue_id, lo, n, ids, state, vt, group_hash, group_key, priority)
        select this_queue, p.lo, p.n, case when p.hi - p.lo + 1 > p.n then p.ids end, case when p.vt > at_ then 'w' else 'r' end::"char",
               p.vt, hashtextextended(p.group_key, 0), p.group_key, p.priority
        from (select min(m.msg_id) as lo, max(m.msg_id) as hi, count(*) as n, m.group_key, m.priority, m.vt,
                     range_agg(int8range(m.msg_id, m.msg_id, '[]')) as ids
              from (select l.msg_id, l.group_key, l.priority, spanmq.visible_at(visible_from, rate, l.ordinality) as vt
                    from unnest(letters) with ordinality l) m
              group by m.msg_id / 256, m.group_key, m.priority, m.vt) p;
end $$;
