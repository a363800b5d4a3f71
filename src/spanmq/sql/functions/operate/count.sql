-- Counting what a queue holds.

-- Counts of a queue, in one statement.
--   backlog = visible + in_flight + delayed + failed; expired: visible ones whose lease has expired
--   leases, oldest_lease_at       of running leases
--   oldest_due_at                 since when the oldest visible message that was delivered, or delayed, has been
-- visible
--   first_fresh_id, oldest_id, newest_id   of the visible ones that were never delivered, and of all; null without any
create or replace function spanmq_core.survey(this_queue int, at_ timestamptz)
returns table (backlog bigint, visible bigint, in_flight bigint, delayed bigint, failed bigint, expired bigint,
               leases bigint,
               oldest_lease_at timestamptz, oldest_due_at timestamptz, first_fresh_id bigint, oldest_id bigint,
               newest_id bigint)
language plpgsql rows 1 :pinned set enable_sort = off as $$
declare
    -- Below it are only rows that a snapshot held by another session keeps.
    from_id bigint := (spanmq_core.bound_of(this_queue)).from_id;
begin
    -- One statement, so of one moment: a message that moves meanwhile is in one of both.
    return query
        select count(*), count(*) filter (where u.vt <= at_),
               count(*) filter (where u.vt > at_ and u.lease_id <> 0),
               count(*) filter (where u.vt > at_ and u.lease_id = 0 and u.attempts = 0),
               count(*) filter (where u.vt > at_ and u.lease_id = 0 and u.attempts > 0),
               count(*) filter (where u.vt <= at_ and u.lease_id <> 0),
               count(distinct u.lease_id) filter (where u.vt > at_ and u.lease_id <> 0),
               min(u.last_read_at) filter (where u.vt > at_ and u.lease_id <> 0),
               min(u.vt) filter (where u.vt <= at_ and (u.is_later or u.attempts > 0)),
               min(u.msg_id) filter (where u.vt <= at_ and not u.is_later and u.attempts = 0),
               min(u.msg_id), max(u.msg_id)
        from (select s.msg_id, s.vt, s.lease_id, s.attempts, s.last_read_at, false as is_later
              from spanmq_core.state s where s.queue_id = this_queue and s.msg_id >= from_id
              union all
              select l.msg_id, l.vt, l.lease_id, l.attempts, l.last_read_at, true
              from spanmq_core.later l where l.queue_id = this_queue) u;
end $$;

-- The counts that metrics() shows.
create or replace function spanmq_core.tally(
    this_queue int, at_ timestamptz, out backlog bigint, out visible bigint, out oldest_id bigint, out newest_id bigint
)
language plpgsql :pinned set enable_sort = off as $$
declare
    from_id bigint := (spanmq_core.bound_of(this_queue)).from_id;
begin
    select count(*), count(*) filter (where u.vt <= at_), min(u.msg_id), max(u.msg_id)
        into backlog, visible, oldest_id, newest_id
        from (select s.msg_id, s.vt from spanmq_core.state s where s.queue_id = this_queue and s.msg_id >= from_id
              union all
              select l.msg_id, l.vt from spanmq_core.later l where l.queue_id = this_queue) u;
end $$;

-- The number of messages of a queue under running leases.
create or replace function spanmq_core.count_in_flight(this_queue int, at_ timestamptz) returns int
language plpgsql as $$
begin
    -- `+ 0`: not by the index later_lease, which has the leases of all queues.
    return (select count(*) from spanmq_core.later h
            where h.queue_id + 0 = this_queue and h.vt > at_ and h.lease_id + 0 <> 0);
end $$;

-- Whether a message with one of these ids is in the queue, for the snapshot of the statement that asks.
create or replace function spanmq_core.has_unsettled_in(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql stable as $$
begin
    return exists (select from spanmq_core.unsettled u where u.queue_id = this_queue
                   and u.msg_id between first_id and last_id);
end $$;

create or replace function spanmq_core.count_alive(this_queue int, first_id bigint, last_id bigint) returns bigint
language plpgsql as $$
begin
    return (select count(*) from spanmq_core.unsettled u where u.queue_id = this_queue
            and u.msg_id between first_id and last_id);
end $$;

-- Copies the rows of a segment that its queue still needs into another table, if they aren't there. Returns how many.
create or replace function spanmq_core.copy_alive(
    this_queue int, first_id bigint, last_id bigint, from_name text, to_name text
) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    execute format('insert into spanmq_core.%I select l.* from ('
                   '  select u.msg_id from spanmq_core.unsettled u where u.queue_id = $1 and u.msg_id between $2 and $3'
                   ' ) s cross join lateral (select * from spanmq_core.%I l where l.msg_id = s.msg_id offset 0) l'
                   -- A subscription's may be there already.
                   ' on conflict do nothing', to_name, from_name)
        using this_queue, first_id, last_id;
    get diagnostics n = row_count;
    return n;
end $$;

-- The first unsettled message from first_id on, and the id of the one with which `quantity` are reached, or of the
-- last. Null: there is none.
create or replace function spanmq_core.reach(this_queue int, first_id bigint, quantity int, out from_id bigint,
                                             out to_id bigint)
language plpgsql as $$
declare
    bound_id bigint := (spanmq_core.bound_of(this_queue)).from_id;
begin
    select min(u.msg_id), max(u.msg_id) into from_id, to_id
        from ((select s.msg_id from spanmq_core.state s
               where s.queue_id = this_queue and s.msg_id >= greatest(first_id, bound_id)
               order by s.queue_id, s.msg_id limit quantity)
              union all
              (select l.msg_id from spanmq_core.later l where l.queue_id = this_queue and l.msg_id >= first_id
               order by l.queue_id, l.msg_id limit quantity)
              order by msg_id limit quantity) u;
end $$;
