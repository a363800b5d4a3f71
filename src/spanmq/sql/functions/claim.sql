-- twin: unlogged
-- Claiming: ready spans, and those that fell due, become the spans of a lease (or are taken out for good, by pop).
-- A claim never waits: what another holds this instant is skipped. It locks no more than it delivers, but for the rest of
-- the one span that it splits.

-- Publishes spans for ids drawn by this transaction, of a queue and its subscriptions: first_id to last_id, or `ids` where those have gaps.
-- `groups` is null, or a group key (or null) for each message. `priority` is theirs, 0 (or null) to 9.
create or replace function spanmq.insert_spans(
    this_queue int, first_id bigint, last_id bigint, ids bigint[], groups text[], visible_at timestamptz, state text, priority int default null
) returns void
language plpgsql as $$
begin
    if ids is null and groups is null then
        insert into spanmq.span (queue_id, lo, n, state, vt, priority)
            select q.queue_id, greatest(first_id, block * 256), least(last_id + 1, block * 256 + 256) - greatest(first_id, block * 256),
                   state::"char", visible_at, nullif(priority, 0)
            from spanmq.queues_of(this_queue) q, generate_series(first_id / 256, last_id / 256) block;
    else
        insert into spanmq.span (queue_id, lo, n, ids, state, vt, group_hash, group_key, priority)
            select q.queue_id, p.lo, p.n, case when p.hi - p.lo + 1 > p.n then p.ids end, state::"char", visible_at,
                   hashtextextended(p.group_key, 0), p.group_key, nullif(priority, 0)
            from spanmq.queues_of(this_queue) q,
                 (select min(m.id) as lo, max(m.id) as hi, count(*) as n, m.group_key, range_agg(int8range(m.id, m.id, '[]')) as ids
                  from (select coalesce(ids[u.position], first_id + u.position - 1) as id, u.group_key
                        from unnest(coalesce(groups, array_fill(null::text, array[cardinality(ids)])))
                             with ordinality u (group_key, position)) m
                  group by m.id / 256, m.group_key) p;
    end if;
end $$;

-- Takes up to `quantity` visible messages, lowest ids first. lease null: they are out of the queue; else they are leased until
-- then. Returns the runs as they were, ascending; with slots > 1 cut so that a slot is ceil(taken / slots) messages.
create or replace function spanmq.claim(this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int)
returns spanmq.run[]
language plpgsql as $$
declare
    runs spanmq.run[] := '{}';
    more spanmq.run[];
    taken int := 0;
    hint spanmq.hint := spanmq.get_hint(this_queue, at_);
    started_at timestamptz := clock_timestamp();
    due_took interval;
    due_at timestamptz;
begin
    if quantity = 0 then
        return runs;
    end if;
    loop
        -- The clock was read once: clock_timestamp() in a where clause is volatile, and no index would serve it. Not beyond it: there lie
        -- the leases of all that was settled since a snapshot is held.
        select s.vt into due_at from spanmq.span s
            where s.queue_id = this_queue and s.state <> 'r' and s.vt >= hint.due_from and s.vt <= at_ order by s.queue_id, s.vt limit 1;
        due_took := clock_timestamp() - started_at;
        if (due_at <= at_) is not true then
            runs := spanmq.claim_ready(this_queue, quantity, at_, hint, due_at, due_took, true);
            taken := spanmq.count_runs(runs);
        end if;
        if taken < quantity and (runs is null or due_at <= at_) then
            -- Something fell due, or there are spans with gaps: these may lie between each other.
            runs := spanmq.claim_mixed(this_queue, quantity, at_, hint.due_from, hint.ready_from);
            taken := spanmq.count_runs(runs);
            if taken < quantity then
                -- Of those that it looked at others held some: whatever is left.
                more := spanmq.claim_ready(this_queue, quantity - taken, at_, hint, due_at, due_took, false);
                if more <> '{}' then
                    select array_agg(r order by r.lo) into runs from unnest(runs || more) r;
                    taken := spanmq.count_runs(runs);
                end if;
            end if;
        end if;
        -- Found nothing along the hint? Look again from the left.
        exit when taken > 0 or hint.due_until is null;
        perform spanmq.forget_hint(this_queue);
        hint := spanmq.no_hint();
        hint.ready_ran_out := true;
        hint.due_ran_out := true;
        started_at := clock_timestamp();
    end loop;
    if slots > 1 and taken > 0 then
        runs := spanmq.cut(runs, ceil(taken / slots::numeric)::int);
    end if;
    if lease is not null and taken > 0 then
        perform spanmq.insert_leased(this_queue, lease, until, at_, runs);
        -- Due at once, perhaps left of a hint that this claim started.
        if until <= at_ then
            perform spanmq.forget_hint(this_queue);
        end if;
    end if;
    return runs;
end $$;

-- Takes ready spans from the left, the last one in part. Returns null, and nothing is taken, if `strict` and one has gaps.
create or replace function spanmq.claim_ready(
    this_queue int, quantity int, at_ timestamptz, hint spanmq.hint, due_at timestamptz, due_took interval, strict boolean
) returns spanmq.run[]
language plpgsql as $$
declare
    ready refcursor;
    this record;
    runs spanmq.run[] := '{}';
    run spanmq.run;
    places tid[] := '{}';
    wanted int;
    taken int := 0;
    head int8multirange;
    from_lo bigint := hint.ready_from;
    started_at timestamptz := clock_timestamp();
begin
    loop
        -- Skip what another receiver holds this instant: waiting for it would serialise them all.
        open ready for select s.*, s.ctid as place from spanmq.span s where s.queue_id = this_queue and s.state = 'r' and s.lo >= from_lo
            order by s.queue_id, s.lo for update skip locked;
        -- Fetched one by one: `limit` would lock as many spans as messages are wanted.
        fetch ready into this;
        if hint.ready_until is not null or hint.due_until is not null then
            hint := spanmq.set_hint(this_queue, hint, this.lo, clock_timestamp() - started_at, least(due_at, at_), due_took);
        elsif spanmq.is_slow(clock_timestamp() - started_at + due_took) then
            hint := spanmq.start_hint(this_queue, hint, this.lo, least(due_at, at_), clock_timestamp() - started_at + due_took);
        end if;
        while this.lo is not null loop
            if strict and this.ids is not null then
                close ready;
                return null;
            end if;
            wanted := least(this.n, quantity - taken);
            places := places || this.place;
            if this.lo = run.lo + run.n and this.lo & 255 <> 0 and this.ids is null and run.ids is null
               and this.attempts = run.attempts and this.priority is not distinct from run.priority and this.group_key is null and run.group_key is null
               and this.vt is not distinct from run.vt and this.last_read_at is not distinct from run.last_read_at then
                run.n := run.n + wanted;
            else
                if run.n > 0 then
                    runs := runs || run;
                end if;
                head := this.ids;
                if wanted < this.n then
                    head := spanmq.first_ids(this.ids, wanted);
                end if;
                run := (this.lo, wanted, head, this.attempts, 0, this.vt, this.last_read_at, this.group_hash, this.group_key, this.priority);
            end if;
            taken := taken + wanted;
            exit when taken >= quantity;
            fetch ready into this;
        end loop;
        close ready;
        -- Found nothing from the hint on? Look again from the left.
        exit when taken > 0 or from_lo = 0;
        from_lo := 0;
    end loop;
    if taken = 0 then
        return runs;
    end if;
    -- By the places of the rows, which their locks keep: a predicate on the state would let the planner walk an index full of dead
    -- entries, and an array of keys, on a table that was never analysed, all spans of the queue.
    delete from spanmq.span s where s.ctid = any (places);
    if wanted < this.n then
        perform spanmq.put_rest((this.queue_id, this.lo, this.lease_id, this.n, this.attempts, this.state, this.vt, this.last_read_at,
                                 this.ids, this.group_hash, this.group_key, this.priority, null)::spanmq.span, wanted, head);
    end if;
    return runs || run;
end $$;

-- A look was slow, it took so long: because of dead entries, or because the machine was busy? Looks once more from the left, and starts a
-- hint if it is slow again; but where one ran out just now it was the entries, and that look is enough. One that there is moves. To first_lo,
-- the first ready span; where the caller did not look for it (null), this does.
create or replace function spanmq.start_hint(
    this_queue int, hint spanmq.hint, first_lo bigint, first_due timestamptz, took interval
) returns spanmq.hint
language plpgsql as $$
declare
    started_at timestamptz := clock_timestamp();
    ready_took interval := took;
    due_took interval := took;
    found_lo bigint;
begin
    if hint.due_until is null and hint.due_ran_out is not true then
        perform from spanmq.span s where s.queue_id = this_queue and s.state <> 'r' and s.vt <= first_due order by s.queue_id, s.vt limit 1;
        due_took := clock_timestamp() - started_at;
    end if;
    if hint.ready_until is null and hint.ready_ran_out is not true or first_lo is null then
        started_at := clock_timestamp();
        select s.lo into found_lo from spanmq.span s
            where s.queue_id = this_queue and s.state = 'r' and s.lo >= hint.ready_from order by s.queue_id, s.lo limit 1;
        ready_took := clock_timestamp() - started_at;
    end if;
    if hint.ready_until is null and not spanmq.is_slow(greatest(due_took, ready_took)) then
        return hint;
    end if;
    return spanmq.set_hint(this_queue, hint, coalesce(first_lo, found_lo), ready_took, first_due, due_took);
end $$;

-- As much for claims of groups: `took` is how long the look for the oldest spans took, first_lo the first message that it found, perhaps of
-- a span that fell due. Those are not all taken, so none of them may be passed by.
create or replace function spanmq.follow_hint(this_queue int, hint spanmq.hint, first_lo bigint, took interval, at_ timestamptz) returns spanmq.hint
language plpgsql as $$
declare
    due_at timestamptz;
begin
    if spanmq.is_slow(took) and (hint.ready_until is null or hint.due_until is null) then
        select s.vt into due_at from spanmq.span s
            where s.queue_id = this_queue and s.state <> 'r' and s.vt >= hint.due_from and s.vt <= at_ order by s.queue_id, s.vt limit 1;
        return spanmq.start_hint(this_queue, hint, case when hint.ready_ran_out then first_lo end, least(due_at, at_), took);
    elsif hint.ready_until is not null and first_lo > hint.ready_from + 100 then
        return spanmq.set_hint(this_queue, hint, first_lo, null, hint.due_from, null);
    end if;
    return hint;
end $$;

-- Puts back what a claim left of a span: all but its first `taken` messages (`head`, when it has gaps).
create or replace function spanmq.put_rest(this spanmq.span, taken int, head int8multirange) returns void
language plpgsql as $$
declare
    rest int8multirange := this.ids - head;
begin
    insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        values (this.queue_id, coalesce(lower(rest), this.lo + taken), 0, this.n - taken, this.attempts, 'r', this.vt, this.last_read_at,
                case when upper(rest) - lower(rest) > this.n - taken then rest end, this.group_hash, this.group_key, this.priority);
end $$;

create or replace function spanmq.insert_leased(this_queue int, lease bigint, until timestamptz, at_ timestamptz, runs spanmq.run[])
returns void
language plpgsql as $$
begin
    insert into spanmq.span (queue_id, lo, lease_id, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, r.lo, lease, r.n, r.attempts + 1, 'l', until, at_,
               case when upper(r.ids) - lower(r.ids) > r.n then r.ids end, r.group_hash, r.group_key, r.priority
        from unnest(runs) r;
end $$;

-- Takes visible spans of every kind, with gaps and without, which may lie between each other: looks at candidates, locks those that
-- hold the quantity lowest ids of them, and looks again at what it has. In the order of ids among the first 2 * quantity + 32 ready
-- spans (up to 1,000) and the 1,000 that fell due first.
create or replace function spanmq.claim_mixed(this_queue int, quantity int, at_ timestamptz, due_from timestamptz, ready_from bigint)
returns spanmq.run[]
language plpgsql as $$
declare
    n_ready int := least(2 * quantity::bigint + 32, 1000);
    ready_to bigint;
    this spanmq.span;
    spans spanmq.span[] := '{}';
    locked spanmq.span[];
    found_ids int8multirange := '{}';
    more int8multirange;
    tried_to bigint := -1;
    last_id bigint;
    here int8multirange;
    runs spanmq.run[] := '{}';
begin
    -- A second round where others held some of those that the first one wanted.
    for round in 1 .. 5 loop
        ready_to := spanmq.last_of_ready(this_queue, quantity, greatest(ready_from, tried_to + 1), n_ready);
        select found_ids + coalesce(range_agg(piece), '{}') into more
            from (
                (select spanmq.ids_of(s.lo, s.n, s.ids) as ids from spanmq.span s
                    where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.vt >= due_from and s.lo > tried_to
                    order by s.vt, s.lo limit 1000)
                union all
                (select spanmq.ids_of(s.lo, s.n, s.ids) from spanmq.span s
                    where s.queue_id = this_queue and s.state = 'r' and s.lo between greatest(ready_from, tried_to + 1) and ready_to
                    order by s.lo limit n_ready)
            ) c cross join lateral unnest(c.ids) piece;
        exit when more = found_ids;
        last_id := upper(spanmq.first_ids(more, quantity)) - 1;
        with candidates as materialized (
            (select s.lo, s.lease_id from spanmq.span s
                where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.vt >= due_from and s.lo > tried_to
                order by s.vt, s.lo limit 1000)
            union all
            (select s.lo, 0 from spanmq.span s
                where s.queue_id = this_queue and s.state = 'r' and s.lo between greatest(ready_from, tried_to + 1) and ready_to
                    order by s.lo limit n_ready))
        -- Skip what another holds this instant. The span as it is now, under its lock.
        select coalesce(array_agg(k.this order by (k.this).lo), '{}') into locked
            from (select * from candidates c where c.lo <= last_id order by c.lo, c.lease_id) c
            cross join lateral (
                select s as this from spanmq.span s
                where s.queue_id = this_queue and s.lo = c.lo and s.lease_id = c.lease_id and (s.state = 'r' or s.vt <= at_)
                for update skip locked) k;
        tried_to := last_id;
        foreach this in array locked loop
            if this.lease_id <> 0 then
                -- Messages may have left a lease that ran out.
                this := spanmq.lock_visible(this_queue, this.lo, this.lease_id, at_);
                continue when this.n is null or this.n = 0;
            end if;
            spans := spans || this;
        end loop;
        select coalesce(range_agg(piece), '{}') into found_ids
            from unnest(spans) s cross join lateral unnest(spanmq.ids_of(s.lo, s.n, s.ids)) piece;
        exit when spanmq.count_ids(found_ids) >= quantity;
    end loop;
    if spans = '{}' then
        return runs;
    end if;
    last_id := upper(spanmq.first_ids(found_ids, quantity)) - 1;
    foreach this in array spans loop
        if this.lease_id <> 0 then
            here := spanmq.ids_of(this.lo, this.n, this.ids) * int8multirange(int8range(null, last_id, '[]'));
            continue when isempty(here);
            -- The rest of a lease that ran out stays what it is: whoever had it may yet settle what nobody took.
            runs := runs || spanmq.cut_out(this_queue, this.lo, this.lease_id, here);
        end if;
    end loop;
    return spanmq.take_ready(this_queue, spans, last_id, runs);
end $$;

-- The last id of the first ready spans from an id on that hold `quantity` messages, or of the first n_most of them: no message further
-- right is among the `quantity` first ones. Looks a few spans further each time: with gaps, each may stand behind a hundred dead entries.
create or replace function spanmq.last_of_ready(this_queue int, quantity int, from_lo bigint, n_most int) returns bigint
language plpgsql as $$
declare
    n_looked int := 4;
    last record;
begin
    loop
        select max(f.ends_at) filter (where f.before < quantity) as id, sum(f.n) as n, count(*) as n_spans into last
            from (select s.n, s.ends_at, coalesce(sum(s.n) over (order by s.lo rows between unbounded preceding and 1 preceding), 0) as before
                  from (select s.lo, s.n, coalesce(upper(s.ids), s.lo + s.n) - 1 as ends_at from spanmq.span s
                        where s.queue_id = this_queue and s.state = 'r' and s.lo >= from_lo order by s.queue_id, s.lo limit n_looked) s) f;
        exit when last.n >= quantity or last.n_spans < n_looked or n_looked = n_most;
        n_looked := least(8 * n_looked, n_most);
    end loop;
    return coalesce(last.id, from_lo - 1);
end $$;

-- Takes the messages up to last_id out of those of the spans, which the caller has locked, that are of no lease. Returns them with `runs`.
create or replace function spanmq.take_ready(this_queue int, spans spanmq.span[], last_id bigint, runs spanmq.run[]) returns spanmq.run[]
language plpgsql as $$
declare
    places tid[];
begin
    -- By the places of the rows, which their locks keep: as in take_spans().
    places := array(
        select k.ctid from unnest(spans) u cross join lateral (
            select s.ctid from spanmq.span s where s.queue_id = this_queue and s.lo = u.lo and s.lease_id = 0 offset 0) k
        where u.lease_id = 0 and u.lo <= last_id);
    delete from spanmq.span s where s.ctid = any (places);
    -- What is left is visible: ready, with its attempts.
    insert into spanmq.span (queue_id, lo, n, attempts, state, vt, last_read_at, ids, group_hash, group_key, priority)
        select this_queue, lower(p.rest), spanmq.count_ids(p.rest), p.attempts, 'r', p.vt, p.last_read_at, spanmq.run_ids(p.rest), p.group_hash,
               p.group_key, p.priority
        from (select u.*, spanmq.ids_of(u.lo, u.n, u.ids) - int8multirange(int8range(null, last_id, '[]')) as rest
              from unnest(spans) u where u.lease_id = 0 and u.lo <= last_id and coalesce(upper(u.ids), u.lo + u.n) > last_id + 1) p;
    return array(
        select p.run from (
            select case when coalesce(upper(u.ids), u.lo + u.n) <= last_id + 1
                        then (u.lo, u.n, u.ids, u.attempts, u.lease_id, u.vt, u.last_read_at, u.group_hash, u.group_key, u.priority)::spanmq.run
                        else spanmq.run_of(u, spanmq.ids_of(u.lo, u.n, u.ids) * int8multirange(int8range(null, last_id, '[]'))) end as run
            from unnest(spans) u where u.lease_id = 0 and u.lo <= last_id
            union all
            select r from unnest(runs) r) p
        order by (p.run).lo);
end $$;

-- Locks a span, if it is visible and nobody else is at it: ready, due, or of a lease that ran out. Never waits. Returns null if
-- not; else the span as it is, without the messages that had left it (n = 0: all had, and it is gone).
create or replace function spanmq.lock_visible(this_queue int, this_lo bigint, lease bigint, at_ timestamptz) returns spanmq.span
language plpgsql as $$
declare
    this spanmq.span;
    gone int8multirange;
begin
    select * into this from spanmq.span s
        where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease and (s.state = 'r' or s.vt <= at_)
        for update skip locked;
    if not found then
        return null;
    end if;
    if lease <> 0 then
        gone := spanmq.forget_settled(this);
        if not isempty(gone) then
            this.ids := spanmq.ids_of(this.lo, this.n, this.ids) - gone;
            this.n := spanmq.count_ids(this.ids);
            if this.n = 0 then
                delete from spanmq.span s where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease;
            else
                update spanmq.span s set ids = this.ids, n = this.n
                    where s.queue_id = this_queue and s.lo = this_lo and s.lease_id = lease;
            end if;
        end if;
    end if;
    return this;
end $$;

-- Removes the notes of what left this leased span, which the caller has locked, and returns those ids.
create or replace function spanmq.forget_settled(this spanmq.span) returns int8multirange
language plpgsql as $$
declare
    gone int8multirange;
    added_ids bigint[];
begin
    if not spanmq.sees_now() then
        -- An old snapshot would not show a note that was just committed. Writing it again does: as a serialization failure.
        with added as (
            insert into spanmq.settled (queue_id, lease_id, msg_id)
                select this.queue_id, this.lease_id, e.id from spanmq.expand(this.lo, this.n, this.ids) e (id)
                where not exists (select from spanmq.settled x
                                  where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id = e.id)
                on conflict do nothing
                returning msg_id)
            select array_agg(a.msg_id) into added_ids from added a;
        delete from spanmq.settled x
            where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id = any (added_ids);
    end if;
    with notes as (
        delete from spanmq.settled x
            where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id between this.lo and this.lo | 255
              and case when this.ids is null then x.msg_id < this.lo + this.n else this.ids @> x.msg_id end
            returning x.msg_id)
        select coalesce(range_agg(int8range(g.msg_id, g.msg_id, '[]')), '{}') into gone from notes g;
    return gone;
end $$;
