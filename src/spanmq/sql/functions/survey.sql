-- twin: unlogged
-- All counts of a queue that health() and the statistics want, in one pass over its spans.

-- Messages that left a lease one by one are not counted. oldest_due_at: since when the longest visible one of those is visible
-- that were leased or waited; oldest_ready_id: the first of the others, which are visible since first_ready_at (null: since they
-- were sent).
create or replace function spanmq.survey(
    this_queue int, at_ timestamptz, out backlog bigint, out visible bigint, out in_flight bigint, out delayed bigint, out failed bigint,
    out expired bigint, out leases bigint, out oldest_lease_at timestamptz, out oldest_due_at timestamptz, out first_ready_id bigint,
    out first_ready_at timestamptz
)
language plpgsql as $$
declare
    noted bigint;
    noted_due bigint;
begin
    select coalesce(sum(s.n), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'l'), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'w' and s.attempts = 0), 0),
           coalesce(sum(s.n) filter (where s.vt > at_ and s.state = 'w' and s.attempts > 0), 0),
           coalesce(sum(s.n) filter (where s.vt <= at_ and s.state = 'l'), 0),
           count(distinct s.lease_id) filter (where s.vt > at_ and s.state = 'l'),
           min(s.last_read_at) filter (where s.vt > at_ and s.state = 'l'),
           min(s.vt) filter (where s.vt <= at_ and s.state <> 'r')
        into backlog, in_flight, delayed, failed, expired, leases, oldest_lease_at, oldest_due_at
        from spanmq.span s where s.queue_id = this_queue;
    select count(*), count(*) filter (where exists (
            select from spanmq.span s where s.queue_id = this_queue and s.lo between x.msg_id - x.msg_id % 256 and x.msg_id
                and s.lease_id = x.lease_id and s.vt <= at_ and case when s.ids is null then x.msg_id < s.lo + s.n else s.ids @> x.msg_id end))
        into noted, noted_due from spanmq.settled x where x.queue_id = this_queue;
    backlog := backlog - noted;
    in_flight := in_flight - (noted - noted_due);
    expired := expired - noted_due;
    visible := backlog - in_flight - delayed - failed;
    select s.lo, s.vt into first_ready_id, first_ready_at from spanmq.span s
        where s.queue_id = this_queue and s.state = 'r' order by s.queue_id, s.lo limit 1;
end $$;

-- How many messages a queue holds, whatever their state.
create or replace function spanmq.count_backlog(this_queue int) returns bigint
language plpgsql as $$
begin
    return (select c.total from spanmq.count_messages(this_queue, clock_timestamp()) c);
end $$;
