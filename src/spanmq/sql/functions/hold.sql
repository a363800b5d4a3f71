-- twin: unlogged
-- Holding single messages of a lease for another time than the rest of it.

-- Gives these messages of a lease a time of their own, and returns them as runs; they stay in the lease. What shared a span with them
-- stays as it was, in a span of its own.
create or replace function spanmq.hold_messages(this_queue int, lease bigint, msg_ids bigint[], until timestamptz) returns spanmq.run[]
language plpgsql as $$
declare
    runs spanmq.run[] := spanmq.take_out(this_queue, msg_ids, lease);
begin
    -- A leased span keeps its key when its first messages leave it; here they come back to the lease, and want that key. Nobody can
    -- note anything of such a span meanwhile: take_out() has locked it. By its place: a join could be planned over all spans.
    with renamed as (
        delete from spanmq.span s
            where s.ctid = any (array(
                select k.ctid from unnest(runs) r cross join lateral (
                    select s.ctid from spanmq.span s where s.queue_id = this_queue and s.lo = r.lo and s.lease_id = lease offset 0) k))
            returning s.*)
    insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select m.queue_id, lower(m.ids), lease, m.n, m.attempts, m.state, m.vt, m.last_read_at, m.ids, m.group_hash, m.group_key, m.priority
        from renamed m;
    insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, r.lo, lease, r.n, r.attempts, 'l', until, r.last_read_at, r.ids, r.group_hash, r.group_key, r.priority
        from unnest(runs) r;
    return runs;
end $$;
