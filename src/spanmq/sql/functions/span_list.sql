-- twin: unlogged
-- What stands in the spans of a queue, for people who look: a bounded number of spans, whatever waits.

-- Counts by state, of a queue with at most `most` spans; nothing (null) if it has more.
create or replace function spanmq.glance_at(
    this_queue int, at_ timestamptz, most int, out backlog bigint, out visible bigint, out in_flight bigint, out delayed bigint, out failed bigint
)
language plpgsql as $$
declare
    n_spans int;
    noted bigint;
    noted_due bigint;
begin
    select count(*), coalesce(sum(s.n), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'l'), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'w' and s.attempts = 0), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'w' and s.attempts > 0), 0)
        into n_spans, backlog, in_flight, delayed, failed
        from (select * from spanmq.span o where o.queue_id = this_queue order by o.queue_id, o.lo limit most + 1) s;
    if n_spans > most then
        backlog := null;
        in_flight := null;
        delayed := null;
        failed := null;
        return;
    end if;
    -- What left its lease one by one. As many as these spans held at most.
    select count(*), count(*) filter (where exists (
            select from spanmq.span s where s.queue_id = this_queue and s.lo between x.msg_id - x.msg_id % 256 and x.msg_id
                and s.lease_id = x.lease_id and s.vt <= at_ and case when s.ids is null then x.msg_id < s.lo + s.n else s.ids @> x.msg_id end))
        into noted, noted_due from spanmq.settled x where x.queue_id = this_queue;
    backlog := backlog - noted;
    in_flight := in_flight - (noted - noted_due);
    visible := backlog - in_flight - delayed - failed;
end $$;

-- The leases of a queue, the oldest first: of its first 2,000 leased spans, at most qty.
create or replace function spanmq.leases_of(this_queue int, at_ timestamptz, qty int)
returns table (leased_at timestamptz, leased_until timestamptz, messages bigint, first_id bigint, last_id bigint, attempt int, is_expired boolean)
language plpgsql as $$
begin
    return query
        select l.leased_at, l.leased_until,
               l.n - (select count(*) from spanmq.settled x where x.queue_id = this_queue and x.lease_id = l.lease_id),
               l.first_id, l.last_id, l.attempt, l.leased_until <= at_
        from (select s.lease_id, min(s.last_read_at) as leased_at, max(s.vt) as leased_until, sum(s.n) as n,
                     min(coalesce(lower(s.ids), s.lo)) as first_id, max(coalesce(upper(s.ids), s.lo + s.n) - 1) as last_id, max(s.attempts) as attempt
              from (select * from spanmq.span o where o.queue_id = this_queue and o.state = 'l' order by o.queue_id, o.lease_id limit 2000) s
              group by s.lease_id order by s.lease_id limit qty) l
        order by l.lease_id;
end $$;

-- Groups of a queue, those first that give nothing: of its next 2,000 hidden spans to become due, the 2,000 that became due first and nobody
-- has taken since, its first 2,000 ready ones and 1,000 that a dead letter blocks. What each waits for is judged as claim_groups() does. Of a group up to 200 spans are counted.
create or replace function spanmq.groups_of(this_queue int, at_ timestamptz, qty int)
returns table (group_key text, state text, until timestamptz, first_id bigint, messages bigint, has_more boolean)
language plpgsql as $$
begin
    return query
        with candidates as (
            select c.hash, min(c.key) as key, min(c.place) as place
            from (
                (select s.group_hash as hash, s.group_key as key, 1 as place from spanmq.span s
                    where s.queue_id = this_queue and s.state <> 'r' and s.vt > at_ order by s.queue_id, s.vt limit 2000)
                union all
                (select b.group_hash, b.group_key, 1 from spanmq.blocked_group b where b.queue_id = this_queue order by b.queue_id, b.group_hash limit 1000)
                union all
                (select s.group_hash, s.group_key, 2 from spanmq.span s
                    where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ order by s.queue_id, s.vt limit 2000)
                union all
                (select s.group_hash, s.group_key, 2 from spanmq.span s
                    where s.queue_id = this_queue and s.state = 'r' order by s.queue_id, s.lo limit 2000)) c
            where c.hash is not null
            group by c.hash order by min(c.place), c.hash limit qty)
        select c.key,
               case when held.state = 'l' then 'leased'
                    when held.state is not null then 'retrying'
                    when head.vt > at_ then 'delayed'
                    when bars.it then 'dead letter'
                    else 'free' end,
               case when held.state is not null then held.vt when head.vt > at_ then head.vt end,
               least(held.lo, head.lo, due.lo), counted.n::bigint, counted.n_spans > 200
        from candidates c
        left join lateral (
            select s.state, s.vt, coalesce(lower(s.ids), s.lo) as lo from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.vt > at_ and spanmq.holds_any(s)
            limit 1) held on true
        -- What is due again, and first in its group wherever it is before the head.
        left join lateral (
            select coalesce(lower(s.ids), s.lo) as lo from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.vt <= at_ and spanmq.holds_any(s)
            order by s.queue_id + 0, s.group_hash, s.lo + 0 limit 1) due on true
        left join lateral (
            select s.state, s.vt, s.lo from spanmq.span s
            where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0
            order by s.queue_id + 0, s.group_hash, s.lo + 0 limit 1) head on (head.lo > due.lo) is not true
        left join lateral (
            select true as it from spanmq.blocked_group b where b.queue_id = this_queue and b.group_hash = c.hash
              and (select p.dead_letter_blocks_group from spanmq.policy p where p.queue_id = b.queue_id) limit 1) bars on true
        cross join lateral (
            select coalesce(sum(o.n) filter (where o.place <= 200), 0) as n, count(*) as n_spans
            from (select s.n, row_number() over () as place from spanmq.span s
                  where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null limit 201) o) counted
        order by held.state is null and coalesce(head.vt <= at_, true) and bars.it is null, least(held.lo, head.lo, due.lo), c.key
        limit qty;
end $$;
