-- Counting and listing what a queue holds. It costs what runs cost, not messages.

-- Counts of a queue, in one statement.
--   backlog = visible + in_flight + delayed + failed; expired: visible ones whose lease has expired
--   leases, oldest_lease_at       of running leases
--   oldest_due_at                 since when the oldest visible held message has been visible
--   first_fresh_id, oldest_id, newest_id   of the fresh ones, and of all; null without messages
create or replace function spanmq_core.survey(
    this_queue int, at_ timestamptz, out backlog bigint, out visible bigint, out in_flight bigint, out delayed bigint, out failed bigint,
    out expired bigint, out leases bigint, out oldest_lease_at timestamptz, out oldest_due_at timestamptz, out first_fresh_id bigint,
    out oldest_id bigint, out newest_id bigint
)
language plpgsql :pinned set enable_sort = off as $$
declare
    counts record;
begin
    -- One statement, so of one moment: a message that is claimed meanwhile is in one of both.
    select f.n as fresh, f.first_id as first_fresh_id, f.last_id as last_fresh_id, h.* into counts
        from (select coalesce(sum(f.n), 0) as n, min(f.lo) as first_id, max(f.lo + f.n - 1) as last_id
              from spanmq_core.fresh f where f.queue_id = this_queue) f
        cross join (
            select coalesce(sum(h.n), 0) as n,
                   coalesce(sum(h.n) filter (where h.vt > at_ and h.lease_id <> 0), 0) as in_flight,
                   coalesce(sum(h.n) filter (where h.vt > at_ and h.lease_id = 0 and h.attempts = 0), 0) as delayed,
                   coalesce(sum(h.n) filter (where h.vt > at_ and h.lease_id = 0 and h.attempts > 0), 0) as failed,
                   coalesce(sum(h.n) filter (where h.vt <= at_ and h.lease_id <> 0), 0) as expired,
                   count(distinct h.lease_id) filter (where h.vt > at_ and h.lease_id <> 0) as leases,
                   min(h.last_read_at) filter (where h.vt > at_ and h.lease_id <> 0) as oldest_lease_at,
                   min(h.vt) filter (where h.vt <= at_) as oldest_due_at, min(h.first_id) as oldest_id, max(h.last_id) as newest_id
            from (select h.vt, h.lease_id, h.attempts, h.last_read_at, c.n,
                         case when c.n = h.n then h.lo else (select min(id) from spanmq_core.left_of(h) id) end as first_id,
                         case when c.n = h.n then h.lo + h.n - 1 else (select max(id) from spanmq_core.left_of(h) id) end as last_id
                  from spanmq_core.held h cross join lateral (select spanmq_core.count_left(h) as n offset 0) c
                  where h.queue_id = this_queue) h
            where h.n > 0) h;
    backlog := counts.fresh + counts.n;
    in_flight := counts.in_flight;
    delayed := counts.delayed;
    failed := counts.failed;
    visible := backlog - in_flight - delayed - failed;
    expired := counts.expired;
    leases := counts.leases;
    oldest_lease_at := counts.oldest_lease_at;
    oldest_due_at := counts.oldest_due_at;
    first_fresh_id := counts.first_fresh_id;
    oldest_id := least(counts.oldest_id, counts.first_fresh_id);
    newest_id := greatest(counts.newest_id, counts.last_fresh_id);
end $$;

-- The ids of a held run that are not done.
create or replace function spanmq_core.left_of(this spanmq_core.held) returns setof bigint
language sql stable as $$
    select id from generate_series(this.lo, this.lo + this.n - 1) id
    where not exists (select from spanmq_core.done d where d.queue_id = this.queue_id and d.msg_id = id)
$$;

-- How many messages a queue holds, whatever their state.
create or replace function spanmq_core.count_backlog(this_queue int) returns bigint
language plpgsql as $$
begin
    return (select s.backlog from spanmq_core.survey(this_queue, clock_timestamp()) s);
end $$;

-- Counts by state, of a queue of at most `most` runs; null if it has more.
create or replace function spanmq_core.glance_at(
    this_queue int, at_ timestamptz, most int, out backlog bigint, out visible bigint, out in_flight bigint, out delayed bigint, out failed bigint
)
language plpgsql as $$
begin
    if (select count(*) from (
            (select from spanmq_core.fresh f where f.queue_id = this_queue order by f.queue_id, f.lo limit most + 1)
            union all
            (select from spanmq_core.held h where h.queue_id = this_queue order by h.queue_id, h.lo limit most + 1)) s) <= most then
        select s.backlog, s.visible, s.in_flight, s.delayed, s.failed into backlog, visible, in_flight, delayed, failed
            from spanmq_core.survey(this_queue, at_) s;
    end if;
end $$;

-- The number of messages of a queue under running leases.
create or replace function spanmq_core.count_in_flight(this_queue int, at_ timestamptz) returns int
language plpgsql as $$
begin
    return (select coalesce(sum(spanmq_core.count_left(h)), 0) from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.vt > at_ and h.lease_id <> 0);
end $$;

-- The leases of a queue, the oldest first: of its first 2,000 leased runs, at most qty.
create or replace function spanmq_core.leases_of(this_queue int, at_ timestamptz, qty int)
returns table (leased_at timestamptz, leased_until timestamptz, messages bigint, first_id bigint, last_id bigint, attempt int, is_expired boolean)
language plpgsql as $$
begin
    return query
        select min(h.last_read_at), max(h.vt), sum(h.n)::bigint, min(h.lo), max(h.end_id), max(h.attempts), max(h.vt) <= at_
        from (select h.lease_id, h.last_read_at, h.vt, h.attempts, h.lo, h.lo + h.n - 1 as end_id, spanmq_core.count_left(h) as n
              from spanmq_core.held h where h.queue_id = this_queue and h.lease_id <> 0 order by h.queue_id, h.lo limit 2000) h
        group by h.lease_id order by h.lease_id limit qty;
end $$;

-- Groups of a queue, blocked groups first: of its next 2,000 hidden runs to become due, the 2,000 that became due first
-- and were not taken since, its first 2,000 fresh ones and 1,000 that a dead letter blocks. Up to 200 runs of a group
-- are counted.
create or replace function spanmq_core.groups_of(this_queue int, at_ timestamptz, qty int)
returns table (group_key text, state text, until timestamptz, first_id bigint, messages bigint, has_more boolean)
language plpgsql as $$
begin
    return query
        with candidates as (
            select c.hash, min(c.key) as key, min(c.place) as place
            from (
                (select h.group_hash as hash, h.group_key as key, 1 as place from spanmq_core.held h
                    where h.queue_id + 0 = this_queue and h.vt > at_ order by h.queue_id + 0, h.vt limit 2000)
                union all
                (select b.group_hash, b.group_key, 1 from spanmq_core.blocked_group b where b.queue_id = this_queue order by b.queue_id, b.group_hash limit 1000)
                union all
                (select h.group_hash, h.group_key, 2 from spanmq_core.held h
                    where h.queue_id + 0 = this_queue and h.vt <= at_ order by h.queue_id + 0, h.vt limit 2000)
                union all
                (select f.group_hash, f.group_key, 2 from spanmq_core.fresh f
                    where f.queue_id = this_queue order by f.queue_id, f.lo limit 2000)) c
            where c.hash is not null
            group by c.hash order by min(c.place), c.hash limit qty)
        select c.key,
               case when blocker.lease_id <> 0 then 'leased'
                    when blocker.lease_id = 0 then 'retrying'
                    when delayed.lo < coalesce(ready.lo, 9223372036854775807) then 'delayed'
                    when bars.it then 'dead letter'
                    else 'free' end,
               coalesce(blocker.vt, case when delayed.lo < coalesce(ready.lo, 9223372036854775807) then delayed.vt end),
               least(blocker.lo, delayed.lo, ready.lo), counted.n::bigint, counted.n_runs > 200
        from candidates c
        left join lateral (
            select h.lease_id, h.vt, h.lo from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.group_hash = c.hash and h.group_hash is not null and h.vt > at_
              and (h.lease_id <> 0 or h.attempts > 0) and spanmq_core.count_left(h) > 0 limit 1) blocker on true
        left join lateral (
            select h.lo, h.vt from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.group_hash = c.hash and h.group_hash is not null and h.vt > at_
              and h.lease_id = 0 and h.attempts = 0 order by h.lo limit 1) delayed on true
        left join lateral (
            select min(r.lo) as lo from (
                (select f.lo from spanmq_core.fresh f
                 where f.queue_id + 0 = this_queue and f.group_hash = c.hash and f.group_hash is not null
                 order by f.queue_id + 0, f.group_hash, f.lo limit 1)
                union all
                select h.lo from spanmq_core.held h
                where h.queue_id + 0 = this_queue and h.group_hash = c.hash and h.group_hash is not null and h.vt <= at_ and spanmq_core.count_left(h) > 0) r
            ) ready on true
        left join lateral (
            select true as it from spanmq_core.blocked_group b where b.queue_id = this_queue and b.group_hash = c.hash
              and (select p.dead_letter_blocks_group from spanmq_core.policy p where p.queue_id = b.queue_id) limit 1) bars on true
        cross join lateral (
            select coalesce(sum(o.n) filter (where o.place <= 200), 0) as n, count(*) as n_runs
            from (select r.n, row_number() over () as place from (
                      (select f.n from spanmq_core.fresh f where f.queue_id + 0 = this_queue and f.group_hash = c.hash and f.group_hash is not null limit 201)
                      union all
                      (select spanmq_core.count_left(h) from spanmq_core.held h
                       where h.queue_id + 0 = this_queue and h.group_hash = c.hash and h.group_hash is not null limit 201)) r) o) counted
        order by blocker.lo is null and (delayed.lo < coalesce(ready.lo, 9223372036854775807)) is not true and bars.it is null,
                 least(blocker.lo, delayed.lo, ready.lo), c.key
        limit qty;
end $$;

-- Whether a message with one of these ids is in the queue.
create or replace function spanmq_core.has_run(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.fresh f where f.queue_id = this_queue and f.lo between first_id and last_id)
        or exists (select from spanmq_core.held h where h.queue_id = this_queue and h.lo between first_id and last_id);
end $$;

create or replace function spanmq_core.count_alive(this_queue int, first_id bigint, last_id bigint) returns bigint
language plpgsql as $$
begin
    return (select coalesce(sum(f.n), 0) from spanmq_core.fresh f where f.queue_id = this_queue and f.lo between first_id and last_id)
         + (select coalesce(sum(h.n), 0) from spanmq_core.held h where h.queue_id = this_queue and h.lo between first_id and last_id);
end $$;

-- Copies the rows of a segment that its queue still needs into another table, if they aren't there. Returns how many.
create or replace function spanmq_core.copy_alive(this_queue int, first_id bigint, last_id bigint, from_name text, to_name text) returns bigint
language plpgsql as $$
declare
    n bigint;
begin
    execute format('insert into spanmq_core.%I select l.* from ('
                   '  select f.lo, f.n from spanmq_core.fresh f where f.queue_id = $1 and f.lo between $2 and $3'
                   '  union all select h.lo, h.n from spanmq_core.held h where h.queue_id = $1 and h.lo between $2 and $3) s'
                   ' cross join lateral (select * from spanmq_core.%I l where l.msg_id >= s.lo and l.msg_id < s.lo + s.n offset 0) l'
                   -- A subscription's may be there already.
                   ' on conflict do nothing', to_name, from_name)
        using this_queue, first_id, last_id;
    get diagnostics n = row_count;
    return n;
end $$;

-- Deletes leased runs all of whose messages are done. Returns how many.
create or replace function spanmq_core.sweep(this_queue int, at_most int) returns int
language plpgsql as $$
declare
    this spanmq_core.held;
    n int := 0;
begin
    for this in
        select distinct on (h.lo) h.* from (
            select * from spanmq_core.done d where d.queue_id = this_queue limit at_most * 256) d
            cross join lateral (
                select * from spanmq_core.held h
                where h.queue_id = this_queue and h.lo <= d.msg_id and h.lo >= d.msg_id / 256 * 256 order by h.queue_id desc, h.lo desc limit 1) h
    loop
        n := n + spanmq_core.sweep_run(this.queue_id, this.lo, this.n)::int;
    end loop;
    return n;
end $$;

-- Cuts visible held runs into runs of ten, so that a claim in an open transaction hides few other messages: up to
-- at_most of the 1,000 that became due first, skipping those that other transactions have locked. Returns the number.
create or replace function spanmq_core.cut_visible(this_queue int, at_ timestamptz, at_most int) returns int
language plpgsql as $$
declare
    due_from timestamptz := (spanmq_core.bound_of(this_queue)).due_from;
    los bigint[] := array(
        select d.lo from (
            select h.lo, h.n from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_ order by h.queue_id + 0, h.vt limit 1000) d
        where d.n > 10 limit at_most);
begin
    if los <> '{}' then
        perform spanmq_core.put_back(this_queue, spanmq_core.take_held(this_queue, los, at_));
    end if;
    return cardinality(los);
end $$;

-- Where the first run at or after first_id's block begins, and up to where, in whole blocks of 256, the runs from there on hold `quantity` ids from
-- first_id on. Null: there is no run.
create or replace function spanmq_core.reach(this_queue int, first_id bigint, quantity int, out from_id bigint, out to_id bigint)
language plpgsql as $$
declare
    this record;
    n bigint := 0;
    fresh_from bigint := (spanmq_core.bound_of(this_queue)).fresh_from;
begin
    for this in
        select u.lo, u.n from (
            (select f.lo, f.n from spanmq_core.fresh f where f.queue_id = this_queue and f.lo >= greatest(first_id / 256 * 256, fresh_from)
             order by f.queue_id, f.lo limit quantity + 256)
            union all
            (select h.lo, h.n from spanmq_core.held h where h.queue_id = this_queue and h.lo >= first_id / 256 * 256
             order by h.queue_id, h.lo limit quantity + 256)) u
        order by u.lo
    loop
        exit when n >= quantity and this.lo > to_id;
        from_id := coalesce(from_id, greatest(this.lo, first_id));
        to_id := this.lo | 255;
        n := n + case when this.lo >= first_id then this.n else 0 end;
    end loop;
end $$;
