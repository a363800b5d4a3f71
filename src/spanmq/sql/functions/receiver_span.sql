-- twin: unlogged
-- The spans that a receiver's batch holds. Their lease_id is negative.

-- Takes the messages of a batch out of the queue for good and returns them as runs.
create or replace function spanmq.take_held(this_queue int, lease bigint) returns spanmq.run[]
language plpgsql as $$
declare
    runs spanmq.run[];
begin
    with gone as (
        delete from spanmq.span s where s.queue_id = this_queue and s.state = 'l' and s.lease_id = lease
        returning s.lo, s.n, s.ids, s.attempts, s.lease_id, s.vt, s.last_read_at, s.group_hash, s.group_key, s.priority)
    select coalesce(array_agg((g.lo, g.n, g.ids, g.attempts, g.lease_id, g.vt, g.last_read_at, g.group_hash, g.group_key, g.priority)::spanmq.run
                              order by g.lo), '{}')
        into runs from gone g;
    return runs;
end $$;

-- The same without looking at them, for what goes nowhere.
create or replace function spanmq.drop_held(this_queue int, lease bigint) returns void
language plpgsql as $$
begin
    delete from spanmq.span s where s.queue_id = this_queue and s.state = 'l' and s.lease_id = lease;
end $$;

-- Gives messages back that a batch held, those over `after_id`: ready, and the attempt is not counted.
create or replace function spanmq.free_held(this_queue int, lease bigint, after_id bigint) returns void
language plpgsql as $$
declare
    runs spanmq.run[] := spanmq.take_held(this_queue, lease);
    run spanmq.run;
    kept int8multirange;
    freed int8multirange;
begin
    foreach run in array runs loop
        freed := spanmq.ids_of(run.lo, run.n, run.ids) * int8multirange(int8range(after_id + 1, null));
        kept := spanmq.ids_of(run.lo, run.n, run.ids) - freed;
        insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
            select this_queue, lower(p.ids), p.lease_id, spanmq.count_ids(p.ids), run.attempts - p.less, p.state, p.vt, run.last_read_at,
                   case when upper(p.ids) - lower(p.ids) > spanmq.count_ids(p.ids) then p.ids end, run.group_hash, run.group_key, run.priority
            from (values (freed, 0::bigint, 1, 'r'::"char", null::timestamptz), (kept, lease, 0, 'l', run.vt)) p (ids, lease_id, less, state, vt)
            where not isempty(p.ids);
    end loop;
end $$;

-- The ids that a batch holds, as runs without gaps: los, his and attempts of one length, ascending.
create or replace function spanmq.list_held(this_queue int, lease bigint, out los bigint[], out his bigint[], out attempts int[], out n bigint)
language plpgsql as $$
begin
    select array_agg(i.lo order by i.lo), array_agg(i.hi order by i.lo), array_agg(i.attempts order by i.lo), coalesce(sum(i.hi - i.lo + 1), 0)
        into los, his, attempts, n
        from (select min(p.lo) as lo, max(p.hi) as hi, p.attempts
              from (select q.*, sum(case when q.before then 0 else 1 end) over (order by q.lo) as island
                    from (select lower(r) as lo, upper(r) - 1 as hi, s.attempts,
                                 coalesce(lag(upper(r)) over w = lower(r) and lag(s.attempts) over w = s.attempts, false) as before
                          from spanmq.span s, unnest(spanmq.ids_of(s.lo, s.n, s.ids)) r
                          where s.queue_id = this_queue and s.state = 'l' and s.lease_id = lease
                          window w as (order by lower(r))) q) p
              group by p.island, p.attempts) i;
end $$;
