-- Taking visible messages. Taken messages are out of their queue, for this transaction alone until it commits; hold()
-- then leases them. A claim never waits: it skips rows that other transactions have locked.

-- Takes up to `quantity` fresh messages, lowest ids first, if no held message is visible; null if one is. Returns runs,
-- ascending; or, in the usual case, lo and n: they follow each other, and have neither a group nor a priority. Where
-- there is a `lease`, for which the bound must not be ahead of at_, these are leased, and a single message always is.
create or replace function spanmq_core.take_fresh(
    this_queue int, quantity int, fresh_from bigint, due_from timestamptz, at_ timestamptz,
    lease bigint default null, until timestamptz default null
) returns spanmq_core.claimed
language plpgsql as $$
declare
    this spanmq_core.fresh;
    n_rows bigint;
    n_more int;
    more_lo bigint;
    end_id bigint;
    is_plain boolean;
    more spanmq_core.fresh[];
    gone spanmq_core.fresh[];
    first_id bigint;
    taken int := 0;
    is_usual boolean := true;
    wanted_rows bigint := greatest((quantity::bigint + 9) / 10, 1);
begin
    if quantity = 1 and lease is not null then
        delete from spanmq_core.fresh f
            where f.ctid = (
                select k.ctid from spanmq_core.fresh k
                where k.queue_id = this_queue and k.lo >= fresh_from
                  and not exists (
                      select from spanmq_core.held h where h.queue_id + 0 = this_queue and h.vt >= due_from
                          and h.vt <= at_)
                order by k.queue_id, k.lo limit 1 for update skip locked)
            returning f.* into this;
        if not found then
            return null;
        end if;
        if this.n > 1 then
            insert into spanmq_core.fresh (queue_id, lo, n, priority, group_hash, group_key)
                values (this_queue, this.lo + 1, this.n - 1, this.priority, this.group_hash, this.group_key);
        end if;
        insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, vt, last_read_at, priority, group_hash,
                                      group_key)
            values (this_queue, this.lo, 1, lease, 1, greatest(until, at_, clock_timestamp()), at_,
                    this.priority, this.group_hash, this.group_key);
        if this.lo & 127 = 0 then
            perform spanmq_core.move_bound(q.queue_id, q.ids) from spanmq_core.queue q where q.queue_id = this_queue;
        end if;
        return (this.lo, 1, null)::spanmq_core.claimed;
    end if;
    loop
        with gone as (
            delete from spanmq_core.fresh f
                where f.ctid = any (array(
                    select k.ctid from spanmq_core.fresh k
                    where k.queue_id = this_queue and k.lo >= fresh_from
                      and not exists (
                          select from spanmq_core.held h
                          where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_)
                    order by k.queue_id, k.lo limit wanted_rows for update skip locked))
                returning f, f.lo, f.n, f.group_key is null and f.priority is null as is_plain)
        select count(*), sum(g.n)::int, min(g.lo), max(g.lo + g.n), bool_and(g.is_plain), array_agg(g.f)
            into n_rows, n_more, more_lo, end_id, is_plain, more from gone g;
        exit when n_rows = 0;
        first_id := coalesce(first_id, more_lo);
        gone := gone || more;
        taken := taken + n_more;
        is_usual := is_usual and is_plain and end_id - first_id = taken;
        exit when taken >= quantity or n_rows < wanted_rows;
        fresh_from := end_id;
        -- As many rows as would do if they were like those; no more than four times as many.
        wanted_rows := greatest(
            (quantity::bigint - taken + 9) / 10, least((quantity - taken)::bigint * n_rows / n_more, 4 * n_rows));
    end loop;
    if taken = 0 then
        return (null, null, case when not exists (
            select from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_) then '{}' end)::spanmq_core.claimed;
    elsif not is_usual then
        return (null, null, spanmq_core.keep_first(
            this_queue, array(select spanmq_core.run_of(f) from unnest(gone) f order by f.lo), quantity)
        )::spanmq_core.claimed;
    end if;
    if taken > quantity then
        insert into spanmq_core.fresh (queue_id, lo, n)
            select this_queue, t.lo, t.n from spanmq_core.tens(first_id + quantity, first_id + taken - 1) t;
        taken := quantity;
    end if;
    end_id := first_id + taken;
    if lease is not null then
        -- A row for each block of 256 ids that they touch.
        insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, vt, last_read_at)
            select this_queue, greatest(first_id, block * 256),
                   (least(end_id, block * 256 + 256) - greatest(first_id, block * 256))::int,
                   lease, 1, greatest(until, at_, clock_timestamp()), at_
            from generate_series(first_id / 256, (end_id - 1) / 256) block;
        if first_id / 8192 <> end_id / 8192 then
            perform spanmq_core.move_bound(q.queue_id, q.ids) from spanmq_core.queue q where q.queue_id = this_queue;
        end if;
    end if;
    return (first_id, taken, null)::spanmq_core.claimed;
end $$;

-- The ids first_id to last_id as fresh runs, one for each block of 256 that they touch.
create or replace function spanmq_core.blocks(first_id bigint, last_id bigint) returns spanmq_core.run[]
language plpgsql immutable as $$
declare
    runs spanmq_core.run[] := '{}';
    end_id bigint;
begin
    while first_id <= last_id loop
        end_id := least(first_id | 255, last_id) + 1;
        runs := runs || (first_id, end_id - first_id, 0, 0, null, null, null, null, null, 0, 0)::spanmq_core.run;
        first_id := end_id;
    end loop;
    return runs;
end $$;

-- Takes up to `quantity` visible messages of any kind, lowest ids first: among the 1,000 held runs that became due
-- first, and the fresh ones. waits: see take_any().
create or replace function spanmq_core.take_visible(
    this_queue int, quantity int, fresh_from bigint, due_from timestamptz, at_ timestamptz, waits boolean
) returns spanmq_core.run[]
language plpgsql as $$
declare
    tried_to bigint := -1;
    due_los bigint[];
    fresh_los bigint[];
    took spanmq_core.run[];
    runs spanmq_core.run[] := '{}';
    missing bigint := quantity;
begin
    -- Again where others hold some of those that were found, or messages of a run were done before. Each round passes a
    -- run.
    for round in 1 .. 1000 loop
        with due as materialized (
            select h.lo, h.n from spanmq_core.held h
            where h.queue_id + 0 = this_queue and h.vt >= due_from and h.vt <= at_ and h.lo > tried_to
            and (h.alone = 0 or waits is null)
            order by h.queue_id + 0, h.vt limit 1000),
        fresh as materialized (
            select f.lo, f.n from spanmq_core.fresh f
            where f.queue_id = this_queue and f.lo >= greatest(fresh_from, tried_to + 1) order by f.queue_id, f.lo
            limit least(missing, 1000))
        select array_agg(c.lo order by c.lo) filter (where c.is_due),
        array_agg(c.lo order by c.lo) filter (where not c.is_due), max(c.lo)
            into due_los, fresh_los, tried_to
            from (select u.*, sum(u.n) over (order by u.lo) - u.n as before
                  from (select d.lo, d.n, true as is_due from due d union all select f.lo, f.n, false from fresh f) u) c
            where c.before < missing;
        exit when tried_to is null;
        took := spanmq_core.take_held(this_queue, due_los, at_) || spanmq_core.take_fresh_at(this_queue, fresh_los);
        runs := runs || took;
        missing := missing - spanmq_core.count_runs(took);
        exit when missing <= 0;
    end loop;
    return spanmq_core.keep_first(this_queue, array(select r from unnest(runs) r order by r.lo), quantity);
end $$;

-- Takes the visible held runs that begin at these ids, but for those that others hold.
create or replace function spanmq_core.take_held(this_queue int, los bigint[], at_ timestamptz)
returns spanmq_core.run[]
language plpgsql as $$
declare
    runs spanmq_core.run[];
begin
    if los is null then
        return '{}';
    end if;
    with gone as (
        delete from spanmq_core.held h
            where h.ctid = any (array(
                select k.ctid from unnest(los) u (lo) cross join lateral (
                    select h.ctid from spanmq_core.held h where h.queue_id = this_queue and h.lo = u.lo and h.vt <= at_
                        for update skip locked) k))
            returning spanmq_core.run_of(h) as run)
    select array_agg(g.run order by (g.run).lo) into runs from gone g;
    return spanmq_core.without_done(this_queue, runs);
end $$;

create or replace function spanmq_core.take_fresh_at(this_queue int, los bigint[]) returns spanmq_core.run[]
language plpgsql as $$
declare
    runs spanmq_core.run[];
begin
    if los is not null then
        with gone as (
            delete from spanmq_core.fresh f
                where f.ctid = any (array(
                    select k.ctid from unnest(los) u (lo) cross join lateral (
                        select f.ctid from spanmq_core.fresh f where f.queue_id = this_queue and f.lo = u.lo
                            for update skip locked) k))
                returning spanmq_core.run_of(f) as run)
        select array_agg(g.run order by (g.run).lo) into runs from gone g;
    end if;
    return coalesce(runs, '{}');
end $$;

create or replace function spanmq_core.run_of(this spanmq_core.held) returns spanmq_core.run
language sql immutable as $$
    select (this.lo, this.n, this.attempts, this.lease_id, this.vt, this.last_read_at, this.group_hash, this.group_key,
            this.priority, this.lost,
            this.alone)::spanmq_core.run
$$;

create or replace function spanmq_core.run_of(this spanmq_core.fresh) returns spanmq_core.run
language sql immutable as $$
    select (this.lo, this.n, 0, 0, null, null, this.group_hash, this.group_key, this.priority, 0, 0)::spanmq_core.run
$$;

-- These runs, which the caller has taken, without the messages that were deleted from them one by one; their notes go.
create or replace function spanmq_core.without_done(this_queue int, runs spanmq_core.run[]) returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.run;
    piece spanmq_core.run;
    kept spanmq_core.run[] := '{}';
begin
    if runs is not null then
        foreach this in array runs loop
            if this.n = 1 or this.lease_id = 0 then
                kept := kept || this;
                continue;
            end if;
            foreach piece in array spanmq_core.run_without(this, spanmq_core.forget_done(this_queue, this.lo, this.n))
                loop
                kept := kept || piece;
            end loop;
        end loop;
    end if;
    return kept;
end $$;

-- Deletes the notes about messages of a run that the caller has locked or taken, and returns their ids.
create or replace function spanmq_core.forget_done(this_queue int, first_id bigint, n int) returns int8multirange
language plpgsql as $$
declare
    gone int8multirange;
    added bigint[];
begin
    if not spanmq_core.sees_now() then
        -- An old snapshot does not show a note that was committed since. Writing it again does, as a serialization
        -- failure.
        with added as (
            insert into spanmq_core.done (queue_id, msg_id)
                select this_queue, id from generate_series(first_id, first_id + n - 1) id
                where not exists (select from spanmq_core.done d where d.queue_id = this_queue and d.msg_id = id)
                on conflict do nothing returning msg_id)
            select array_agg(a.msg_id) into added from added a;
        delete from spanmq_core.done d where d.queue_id = this_queue and d.msg_id = any (added);
    end if;
    with notes as (
        delete from spanmq_core.done d where d.queue_id = this_queue and d.msg_id >= first_id
            and d.msg_id < first_id + n returning d.msg_id)
        select range_agg(int8range(g.msg_id, g.msg_id, '[]')) into gone from notes g;
    return coalesce(gone, '{}');
end $$;

-- The runs of these ids, alike in all else.
create or replace function spanmq_core.pieces(this spanmq_core.run, ids int8multirange) returns spanmq_core.run[]
language sql immutable as $$
    select array(
        select (lower(r), upper(r) - lower(r), this.attempts, this.lease_id, this.vt, this.last_read_at,
                this.group_hash, this.group_key,
                this.priority, this.lost, this.alone)::spanmq_core.run
        from unnest(ids) r order by lower(r))
$$;

-- The first `quantity` messages of runs that the caller has taken, joined where they follow each other; the rest goes
-- back.
create or replace function spanmq_core.keep_first(this_queue int, runs spanmq_core.run[], quantity int)
returns spanmq_core.run[]
language plpgsql as $$
declare
    this spanmq_core.run;
    rest spanmq_core.run;
    kept spanmq_core.run[] := '{}';
    back spanmq_core.run[] := '{}';
begin
    if spanmq_core.count_runs(runs) <= quantity then
        return spanmq_core.join_runs(runs);
    end if;
    foreach this in array runs loop
        if quantity >= this.n then
            kept := kept || this;
        else
            rest := this;
            if quantity > 0 then
                rest.lo := this.lo + quantity;
                rest.n := this.n - quantity;
                this.n := quantity;
                kept := kept || this;
            end if;
            back := back || rest;
        end if;
        quantity := greatest(quantity - this.n, 0);
    end loop;
    perform spanmq_core.put_back(this_queue, back);
    return spanmq_core.join_runs(kept);
end $$;

-- Puts runs that the caller has taken back as they were.
create or replace function spanmq_core.put_back(this_queue int, runs spanmq_core.run[]) returns void
language plpgsql set jit = off as $$
begin
    if runs = '{}' then
        return;
    end if;
    insert into spanmq_core.fresh (queue_id, lo, n, priority, group_hash, group_key)
        select this_queue, t.lo, t.n, r.priority, r.group_hash, r.group_key
        from unnest(runs) r, spanmq_core.tens(r.lo, r.lo + r.n - 1) t where r.vt is null;
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                  group_hash, group_key)
        select this_queue, t.lo, t.n, r.lease_id, r.attempts, r.lost, r.alone, r.vt, r.last_read_at, r.priority,
        r.group_hash, r.group_key
        from unnest(runs) r, spanmq_core.tens(r.lo, r.lo + r.n - 1) t where r.vt is not null;
end $$;
