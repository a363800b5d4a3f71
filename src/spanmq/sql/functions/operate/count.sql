-- Counting and listing what a queue holds. It costs what runs cost, not messages.

-- Counts of a queue, in one statement.
--   backlog = visible + in_flight + delayed + failed; expired: visible ones whose lease has expired
--   leases, oldest_lease_at       of running leases
--   oldest_due_at                 since when the oldest visible held message has been visible
--   first_fresh_id, oldest_id, newest_id   of the fresh ones, and of all; null without messages
create or replace function spanmq_core.survey(this_queue int, at_ timestamptz)
returns table (backlog bigint, visible bigint, in_flight bigint, delayed bigint, failed bigint, expired bigint,
               leases bigint,
               oldest_lease_at timestamptz, oldest_due_at timestamptz, first_fresh_id bigint, oldest_id bigint,
               newest_id bigint)
language plpgsql rows 1 :pinned set enable_sort = off as $$
begin
    -- One statement, so of one moment: a message that is claimed meanwhile is in one of both.
    return query
        select (f.n + h.n)::bigint, (f.n + h.n - h.in_flight - h.delayed - h.failed)::bigint, h.in_flight::bigint,
        h.delayed::bigint, h.failed::bigint,
               h.expired::bigint, h.leases, h.oldest_lease_at, h.oldest_due_at, f.first_id,
               least(f.first_id, h.oldest_id), greatest(f.last_id, h.newest_id)
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
                   min(h.vt) filter (where h.vt <= at_) as oldest_due_at, min(h.first_id) as oldest_id,
                   max(h.last_id) as newest_id
            from (select h.vt, h.lease_id, h.attempts, h.last_read_at, c.n,
                         case when c.n = h.n then h.lo else (select min(id) from spanmq_core.left_of(h) id) end
                         as first_id,
                         case when c.n = h.n then h.lo + h.n - 1
                         else (select max(id) from spanmq_core.left_of(h) id) end as last_id
                  from spanmq_core.held h cross join lateral (select spanmq_core.count_left(h) as n offset 0) c
                  where h.queue_id = this_queue) h
            where h.n > 0) h;
end $$;

-- The counts that metrics() shows, by a scan of the runs; messages that are done are looked for only where there are
-- some.
create or replace function spanmq_core.tally(
    this_queue int, at_ timestamptz, out backlog bigint, out visible bigint, out oldest_id bigint, out newest_id bigint
)
language plpgsql :pinned set enable_sort = off as $$
begin
    -- One statement, so of one moment, as in survey().
    select f.n + h.n - d.n, f.n + h.n_visible - d.n_visible, least(f.first_id, first.id), greatest(f.last_id, last.id)
        into backlog, visible, oldest_id, newest_id
        from (select coalesce(sum(f.n), 0) as n, min(f.lo) as first_id, max(f.lo + f.n - 1) as last_id
              from spanmq_core.fresh f where f.queue_id = this_queue) f
        cross join (
            select coalesce(sum(h.n), 0) as n, coalesce(sum(h.n) filter (where h.vt <= at_), 0) as n_visible
            from spanmq_core.held h where h.queue_id = this_queue) h
        cross join (
            select coalesce(sum(c.n), 0) as n, coalesce(sum(c.n) filter (where h.vt <= at_), 0) as n_visible
            from (select min(d.msg_id) / 256 * 256 as first_id, max(d.msg_id) as last_id from spanmq_core.done d
                  where d.queue_id = this_queue) d
            cross join lateral (
                select * from spanmq_core.held h
                where h.queue_id = this_queue and h.lo between d.first_id and d.last_id and h.n > 1
                and h.lease_id <> 0 offset 0) h
            cross join lateral (
                select count(*) as n from spanmq_core.done d
                where d.queue_id = this_queue and d.msg_id >= h.lo and d.msg_id < h.lo + h.n) c) d
        left join lateral (
            select l.id
                from (select * from spanmq_core.held h where h.queue_id = this_queue order by h.queue_id, h.lo offset 0)
                h
            cross join lateral (select min(l) as id from spanmq_core.left_of(h) l) l where l.id is not null
            limit 1) first on true
        left join lateral (
            select l.id from (select * from spanmq_core.held h where h.queue_id = this_queue order by h.queue_id desc,
                              h.lo desc offset 0) h
            cross join lateral (select max(l) as id from spanmq_core.left_of(h) l) l where l.id is not null
            limit 1) last on true;
end $$;

-- The ids of a held run that are not done.
create or replace function spanmq_core.left_of(this spanmq_core.held) returns setof bigint
language sql stable as $$
    select id from generate_series(this.lo, this.lo + this.n - 1) id
    -- The range again, for plans that look at the notes first.
    where not exists (select from spanmq_core.done d where d.queue_id = this.queue_id and d.msg_id = id
                      and d.msg_id between this.lo and this.lo + this.n - 1)
$$;

-- The number of messages of a queue under running leases.
create or replace function spanmq_core.count_in_flight(this_queue int, at_ timestamptz) returns int
language plpgsql as $$
begin
    return (select coalesce(sum(spanmq_core.count_left(h)), 0) from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.vt > at_ and h.lease_id <> 0);
end $$;

-- Whether a message with one of these ids is in the queue, for the snapshot of the statement that asks.
create or replace function spanmq_core.has_run(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql stable as $$
begin
    return exists (select from spanmq_core.fresh f where f.queue_id = this_queue and f.lo between first_id and last_id)
        or exists (select from spanmq_core.held h where h.queue_id = this_queue and h.lo between first_id and last_id);
end $$;

create or replace function spanmq_core.count_alive(this_queue int, first_id bigint, last_id bigint) returns bigint
language plpgsql as $$
begin
    return (select coalesce(sum(f.n), 0) from spanmq_core.fresh f where f.queue_id = this_queue
            and f.lo between first_id and last_id)
         + (select coalesce(sum(h.n), 0) from spanmq_core.held h where h.queue_id = this_queue and h.lo between first_id
            and last_id);
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
                   '  select f.lo, f.n from spanmq_core.fresh f where f.queue_id = $1 and f.lo between $2 and $3'
                   '  union all select h.lo, h.n from spanmq_core.held h where h.queue_id = $1 and h.lo between'
                   ' $2 and $3) s'
                   ' cross join lateral (select * from spanmq_core.%I l where l.msg_id >= s.lo and l.msg_id < s.lo +'
                   ' s.n offset 0) l'
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
                where h.queue_id = this_queue and h.lo <= d.msg_id and h.lo >= d.msg_id / 256 * 256
                order by h.queue_id desc, h.lo desc limit 1) h
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
            where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_ order by h.queue_id + 0, h.vt
            limit 1000) d
        where d.n > 10 limit at_most);
    runs spanmq_core.run[];
begin
    if los = '{}' then
        return 0;
    end if;
    runs := spanmq_core.take_held(this_queue, los, at_);
    perform spanmq_core.put_back(this_queue, runs);
    return (select count(*) from unnest(runs) r where r.n > 10);
end $$;

-- Where the first run at or after first_id's block begins, and up to where, in whole blocks of 256, the runs from there
-- on hold `quantity` ids from first_id on. Null: there is no run.
create or replace function spanmq_core.reach(this_queue int, first_id bigint, quantity int, out from_id bigint,
                                             out to_id bigint)
language plpgsql as $$
declare
    this record;
    n bigint := 0;
    fresh_from bigint := (spanmq_core.bound_of(this_queue)).fresh_from;
begin
    for this in
        select u.lo, u.n from (
            (select f.lo, f.n from spanmq_core.fresh f where f.queue_id = this_queue
             and f.lo >= greatest(first_id / 256 * 256, fresh_from)
             order by f.queue_id, f.lo limit quantity::bigint + 256)
            union all
            (select h.lo, h.n from spanmq_core.held h where h.queue_id = this_queue and h.lo >= first_id / 256 * 256
             order by h.queue_id, h.lo limit quantity::bigint + 256)) u
        order by u.lo
    loop
        exit when n >= quantity and this.lo > to_id;
        from_id := coalesce(from_id, greatest(this.lo, first_id));
        to_id := this.lo | 255;
        n := n + case when this.lo >= first_id then this.n else 0 end;
    end loop;
end $$;
