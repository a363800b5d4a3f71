-- twin: unlogged
-- Taking spans that are locked: for a lease, or out of the queue.

-- Takes the spans los[i], leases[i], which the caller has locked: whole, or where taken[i] is not null that many of their first
-- messages; what is left of those stays what it was. lease null: out of the queue. Returns the runs by their first ids; attempts are as they
-- were, and out of the queue so is the rest. With slots > 1 they are cut as claim() says.
create or replace function spanmq.take_spans(
    this_queue int, los bigint[], leases bigint[], taken int[], lease bigint, until timestamptz, at_ timestamptz, slots int
) returns spanmq.run[]
language plpgsql as $$
declare
    runs spanmq.run[];
    parts spanmq.run[] := '{}';
    is_simple boolean := 0 = all (leases);
    places tid[];
begin
    if array_remove(taken, null) <> '{}' then
        perform spanmq.split_spans(this_queue, los, leases, taken);
        if not is_simple then
            for i in 1 .. cardinality(los) loop
                if leases[i] <> 0 and taken[i] is not null then
                    -- The rest stays in the lease that ran out.
                    parts := parts || spanmq.cut_first(this_queue, los[i], leases[i], taken[i]);
                    los[i] := null;
                end if;
            end loop;
        end if;
    end if;
    -- One look a span, then by the places of the rows, which their locks keep: a join, or an array of keys on a table that was never
    -- analysed, could be planned as a look at all spans of the queue.
    places := array(
        select k.ctid from unnest(los, leases) u (lo, lease_id) cross join lateral (
            select s.ctid from spanmq.span s where s.queue_id = this_queue and s.lo = u.lo and s.lease_id = u.lease_id offset 0) k);
    if lease is not null and slots = 1 and is_simple then
        with leased as (
            update spanmq.span s
                set lease_id = lease, state = 'l', vt = until, last_read_at = at_, attempts = s.attempts + 1
                where s.ctid = any (places)
                returning s.*)
        select array_agg((l.lo, l.n, l.ids, l.attempts - 1, 0, null, null, l.group_hash, l.group_key, l.priority)::spanmq.run order by l.lo)
            into runs from leased l;
        return runs;
    end if;
    with gone as (
        delete from spanmq.span s
            where s.ctid = any (places)
            returning s.*)
    select array_agg((coalesce(lower(g.ids), g.lo), g.n, g.ids, g.attempts, g.lease_id, g.vt, g.last_read_at, g.group_hash, g.group_key,
                      g.priority)::spanmq.run order by coalesce(lower(g.ids), g.lo)) into runs
        from gone g;
    if parts <> '{}' then
        select array_agg(r order by r.lo) into runs from unnest(runs || parts) r;
    end if;
    if slots > 1 then
        runs := spanmq.cut(runs, ceil(spanmq.count_runs(runs) / slots::numeric)::int);
    end if;
    if lease is not null then
        perform spanmq.insert_leased(this_queue, lease, until, at_, runs);
    end if;
    return runs;
end $$;

-- Takes the first messages of a leased span that the caller has locked.
create or replace function spanmq.cut_first(this_queue int, this_lo bigint, lease bigint, n int) returns spanmq.run
language plpgsql as $$
declare
    this spanmq.span;
begin
    select * into this from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease;
    return spanmq.cut_out(this_queue, this_lo, lease, spanmq.first_ids(spanmq.ids_of(this.lo, this.n, this.ids), n));
end $$;

-- Splits locked spans of no lease after their first taken[i] messages (null: not). The second parts are ready.
create or replace function spanmq.split_spans(this_queue int, los bigint[], leases bigint[], taken int[]) returns void
language plpgsql as $$
declare
    this spanmq.span;
    head int8multirange;
begin
    for i in 1 .. cardinality(los) loop
        continue when taken[i] is null or leases[i] <> 0;
        select * into this from spanmq.span s where s.queue_id = this_queue and s.lo = los[i] and s.lease_id = leases[i];
        head := spanmq.first_ids(this.ids, taken[i]);
        update spanmq.span s set n = taken[i], ids = spanmq.run_ids(head)
            where s.queue_id = this_queue and s.lo = los[i] and s.lease_id = leases[i];
        perform spanmq.put_rest(this, taken[i], head);
    end loop;
end $$;
