-- twin: unlogged
-- Claiming by priority, for queues to which messages were sent with one.

-- As claim(): the highest priority first, where every `aging` seconds that a message has been visible weigh one level, so that a
-- high one never starves the others; by id among equals. Compares the heads of all levels, so the backlogs behind them cost nothing.
create or replace function spanmq.claim_by_priority(
    this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, aging double precision
) returns spanmq.run[]
language plpgsql as $$
declare
    found_los bigint[];
    found_leases bigint[];
    found_priorities int[];
    found_at timestamptz[];
    candidate record;
    this spanmq.span;
    los bigint[] := '{}';
    leases bigint[] := '{}';
    taken int[] := '{}';
    room int := quantity;
    most int := least(quantity, 1000);
    runs spanmq.run[];
begin
    if quantity = 0 then
        return '{}';
    end if;
    -- A message of no priority that is not among the first ready spans stands behind as many older ones of a higher level as are wanted.
    select array_agg(c.lo), array_agg(c.lease_id), array_agg(c.priority), array_agg(c.since)
        into found_los, found_leases, found_priorities, found_at
        from (select distinct on (s.lo, s.lease_id) s.lo, s.lease_id, coalesce(s.priority, 0) as priority, s.since
              from (
                (select s.lo, s.lease_id, s.priority, s.vt as since from spanmq.span s
                    where s.queue_id = this_queue and s.state = 'r' order by s.lo limit most)
                union all
                (select s.lo, s.lease_id, s.priority, s.vt from generate_series(1, 9) level
                    cross join lateral (
                        select * from spanmq.span s
                        where s.queue_id = this_queue and s.state = 'r' and s.priority = level and s.priority > 0
                        order by s.lo limit most) s)
                union all
                (select s.lo, s.lease_id, s.priority, case when s.state = 'w' then s.vt end from spanmq.span s
                    where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ order by s.vt limit 1000)) s
              order by s.lo, s.lease_id) c;
    if found_los is null then
        return '{}';
    end if;
    if array_position(found_at, null) is not null then
        found_at := spanmq.visible_since(this_queue, found_los, found_at);
    end if;
    for candidate in
        select c.lo, c.lease_id
        from (select u.*,
                     -- By id within a level: one that came back is as old as the oldest behind it.
                     min(u.since) over (partition by u.priority order by u.lo desc) as waits_since
              from unnest(found_los, found_leases, found_priorities, found_at) u (lo, lease_id, priority, since)) c
        order by c.priority + coalesce(extract(epoch from at_ - c.waits_since), 0) / aging desc, c.lo
    loop
        this := spanmq.lock_visible(this_queue, candidate.lo, candidate.lease_id, at_);
        continue when this.n is null or this.n = 0;
        los := los || this.lo;
        leases := leases || this.lease_id;
        taken := taken || case when this.n > room then room end;
        room := room - this.n;
        exit when room <= 0;
    end loop;
    if los = '{}' then
        return '{}';
    end if;
    if slots = 1 or lease is null then
        return spanmq.by_priority(spanmq.take_spans(this_queue, los, leases, taken, lease, until, at_, 1));
    end if;
    -- Slots are cut in the order of delivery.
    runs := spanmq.by_priority(spanmq.take_spans(this_queue, los, leases, taken, null, null, at_, 1));
    runs := spanmq.cut(runs, ceil(spanmq.count_runs(runs) / slots::numeric)::int);
    perform spanmq.insert_leased(this_queue, lease, until, at_, runs);
    return runs;
end $$;
