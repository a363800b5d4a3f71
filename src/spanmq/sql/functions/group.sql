-- twin: unlogged
-- Ordered groups. A group is blocked while one of its messages is leased or waits after a delivery, or while a dead letter
-- blocks it; its run ends where a delayed message stands. Messages without a group are one group, `_default_fifo_group`, as in
-- PGMQ. Here a group is its hash (null: no group): two keys of one hash would only wait for each other.

-- Claims the head runs of groups that are not blocked. mode says how they share the quantity:
--   fair  no group more than a quarter while others have some; half for the oldest, half by turn (below)
--   fill  as much as there is of the oldest group, then of the next
--   rr    one of each group in turn, oldest group first
--   head  one of each
--   free  groups have no order and don't block, only that none has more than most_in_flight in work: of claims of several messages every
--         fourth or so is as fair, the others give the oldest (claim_oldest), and of those no group more than a quarter
-- most_in_flight (null: any number) holds for a group in every mode.
-- Looks first at the groups of the oldest ready spans and of what fell due. Where that was not all, it goes on round the ring of
-- all groups, from where this session ended the last time: at 500 groups, and at up to 5,000 if it finds nothing. So neither a
-- long backlog nor any number of blocked groups hides a free group for ever, and what stands behind a blocked group costs
-- nothing. Where a group gave less than it seemed to have (another was at it, a delayed message stands in it), the next ones fill up.
-- Returns runs in the order of delivery. Raises MQ003 outside READ COMMITTED. Locks the groups that it takes, to the end
-- of the transaction; never waits.
create or replace function spanmq.claim_groups(
    this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, mode text, most_in_flight int
) returns spanmq.run[]
language plpgsql as $$
declare
    candidates refcursor;
    candidate record;
    runs spanmq.run[] := '{}';
    missing int := quantity;
    hashes bigint[];
    wants int[];
    taken_hashes bigint[] := '{}';         -- of all rounds
    taken_wants int[] := '{}';
    tried bigint[] := '{}';
    is_cut_short boolean;          -- there was no room for more groups, so that there may be some that were not looked at
    n_left int := 32 + 2 * least(quantity, 1000);
    there_is_more boolean := false;
    with_left boolean := true;
    room int;
    room_left int;
    share int;
    most int := least(case mode when 'fair' then (quantity + 3) / 4 when 'free' then (quantity + 3) / 4 when 'head' then 1 else quantity end, most_in_flight);
    begun_at bigint;
    is_odd boolean;
    turn bigint;
    n_looked int;
    by_turn boolean;
    hint spanmq.hint := spanmq.get_hint(this_queue, at_);
    is_hinted boolean := hint.ready_until is not null or hint.due_until is not null;
    -- take_groups(), which decides, reads it anew.
    settled_to bigint := (select q.settled_to from spanmq.queue q where q.queue_id = this_queue);
    started_at timestamptz;
begin
    if not spanmq.sees_now() then
        raise exception 'grouped reads need READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            using errcode = 'MQ003', hint = 'Whether a group is free can be judged only by a statement begun after its lock was taken.';
    end if;
    if quantity = 0 then
        return runs;
    end if;
    hint.ready_from := greatest(hint.ready_from, settled_to);
    begun_at := spanmq.get_turn(this_queue);
    is_odd := begun_at & 1 = 1;
    begun_at := begun_at | 31;
    turn := begun_at;
    -- Where groups have no order, three claims of four go by their age alone, if nothing stands against it: those take half of the time.
    if mode = 'free' and quantity > 1 and not is_odd then
        runs := spanmq.claim_oldest(this_queue, quantity, lease, until, at_, slots, most_in_flight, hint);
        missing := quantity - spanmq.count_runs(runs);
        if missing = 0
           or (runs <> '{}' or not is_hinted)
              and not exists (select from spanmq.span s where s.queue_id = this_queue and s.state = 'r' and s.lo >= hint.ready_from)
              and not exists (select from spanmq.span s
                              where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.vt >= hint.due_from) then
            perform spanmq.set_turn(this_queue, begun_at, random() < 1 / 3.0);
            if until <= at_ then
                perform spanmq.forget_hint(this_queue);
            end if;
            return runs;
        end if;
        select coalesce(array_agg(g.hash), '{}'), coalesce(array_agg(g.n), '{}') into taken_hashes, taken_wants
            from (select r.group_hash as hash, sum(r.n)::int as n from unnest(runs) r group by r.group_hash) g;
        tried := taken_hashes;
    end if;
    room_left := case when mode not in ('fair', 'free') then quantity
                      -- Of claims of one message every second one goes by turn.
                      when quantity = 1 then is_odd::int else quantity / 2 end;
    for round in 1 .. 10 loop
        hashes := '{}';
        wants := '{}';
        room := missing;
        n_looked := 0;
        is_cut_short := false;
        -- The groups of the oldest spans; then, where these are not all that there is, those whose turn it is.
        foreach by_turn in array case when with_left then array[false, true] else array[true] end loop
            exit when by_turn and not there_is_more;
            started_at := clock_timestamp();
            -- Fetched one by one: a step round the ring may pass many dead entries.
            open candidates for
                select c.*,
                       -- One look a group, and only for groups that come so far: `exists` could be planned as a look for all that are blocked.
                       case when mode = 'free'
                            -- The state only as a filter: as a condition it would let the planner look at all leased spans, for each group. Counted
                            -- exactly only where the spans as they are make it too many. By turn come groups of which all is in work, too.
                            then (select sum(s.n) filter (where s.state = 'l' and s.vt > at_) from spanmq.span s
                                  where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
                                    and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.lo + 0 >= settled_to) >= most_in_flight
                                 and (select sum(spanmq.count_left(s)) filter (where s.state = 'l' and s.vt > at_) from spanmq.span s
                                      where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
                                        and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.lo + 0 >= settled_to) >= most_in_flight
                                 or by_turn
                                 and (select true from spanmq.span s
                                      where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
                                        and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0 and s.lo + 0 >= settled_to limit 1) is null
                            when (select true from spanmq.span s
                                  where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
                                    and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.lo + 0 >= settled_to
                                    and s.vt > at_ and spanmq.holds_any(s) limit 1) then true
                            -- A delayed message stands first: the group gives nothing, and must not hide the next one. What was delivered and came
                            -- back stands before it.
                            when (select s.state = 'w' and s.vt > at_
                                         and (select true from spanmq.span b
                                              where b.queue_id + 0 = this_queue and b.group_hash = c.hash and b.group_hash is not null
                                                and case when b.state = 'l' or b.state = 'w' and b.attempts > 0 then 1 else 0 end = 1
                                                and b.lo + 0 >= settled_to and b.lo + 0 < s.lo limit 1) is null
                                  from spanmq.span s
                                  where s.queue_id + 0 = this_queue and s.group_hash = c.hash and s.group_hash is not null
                                    and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0 and s.lo + 0 >= settled_to
                                  order by s.lo + 0 limit 1) then true
                            when c.hash is null
                            then (select true from spanmq.span s
                                  where s.queue_id = this_queue and s.state <> 'r' and s.vt > at_ and s.group_hash is null and s.attempts > 0
                                    and spanmq.holds_any(s) limit 1)
                            else (select true from spanmq.blocked_group b where b.queue_id = this_queue and b.group_hash = c.hash
                                    -- The row may be of one that buried while the policy was taken back.
                                    and (select p.dead_letter_blocks_group from spanmq.policy p where p.queue_id = b.queue_id) limit 1)
                       end as is_blocked
                from (
                    (select s.group_hash as hash, sum(s.n) as n, sum(count(*)) over () as n_spans,
                            sum(sum(s.n)) over () as n_messages, min(s.lo) as lo
                        from (
                            (select s.group_hash, s.n, s.lo from spanmq.span s
                                where s.queue_id = this_queue and s.state = 'r' and s.lo >= hint.ready_from
                                order by s.lo limit n_left)
                            union all
                            (select s.group_hash, s.n, s.lo from spanmq.span s
                                where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_ and s.vt >= hint.due_from
                                order by s.vt limit n_left)) s
                        where not by_turn
                        group by s.group_hash order by min(s.lo))
                    union all
                    (with recursive ring (hash, n, place, wrapped) as (
                        select turn, 0, 0, turn < begun_at where by_turn
                        union all
                        -- One step at a time, of whatever length the group behind it.
                        select coalesce(next.hash, first.hash), coalesce(next.n, first.n), r.place + 1, r.wrapped or next.hash is null
                        from ring r
                        left join lateral (
                            select s.group_hash as hash, s.n from spanmq.span s
                            where s.queue_id + 0 = this_queue and s.group_hash > r.hash and s.group_hash is not null
                            order by s.queue_id + 0, s.group_hash limit 1) next on true
                        left join lateral (
                            select s.group_hash as hash, s.n from spanmq.span s
                            where next.hash is null and not r.wrapped and s.queue_id + 0 = this_queue and s.group_hash is not null
                            order by s.queue_id + 0, s.group_hash limit 1) first on true
                        where r.place < 500 and not (r.wrapped and coalesce(next.hash > begun_at, true))
                    )
                    select r.hash, r.n, null, null, null from ring r where r.place > 0 and r.hash is not null)
                    offset 0) c;
            loop
                fetch candidates into candidate;
                exit when not found;
                if by_turn then
                    turn := candidate.hash;
                    n_looked := n_looked + 1;
                else
                    if started_at is not null then
                        hint := spanmq.follow_hint(this_queue, hint, candidate.lo, clock_timestamp() - started_at, at_);
                        started_at := null;
                    end if;
                    if candidate.n_spans < n_left and (mode not in ('fair', 'free') or candidate.n_messages <= quantity) then
                        room_left := room;
                    else
                        there_is_more := true;
                        exit when room_left <= 0;
                    end if;
                end if;
                continue when candidate.is_blocked or coalesce(candidate.hash, 0) = any (tried);
                tried := tried || coalesce(candidate.hash, 0);
                -- Locks are held to commit, and their number is bounded for the whole server: only for groups that are about to be taken.
                continue when not pg_try_advisory_xact_lock(hashint8extended(coalesce(candidate.hash, 0), this_queue));
                share := least(candidate.n, most, room);
                if not by_turn then
                    share := least(share, room_left);
                    room_left := room_left - share;
                end if;
                if mode = 'rr' then
                    share := 1;
                end if;
                room := room - share;
                hashes := hashes || candidate.hash;
                wants := wants || case when mode in ('rr', 'fill') then least(missing, most_in_flight) else share end;
                is_cut_short := room <= 0 or cardinality(hashes) + cardinality(taken_hashes) >= 500;
                exit when is_cut_short;
            end loop;
            close candidates;
            exit when is_cut_short;
        end loop;
        is_cut_short := room <= 0;
        if hashes <> '{}' then
            if room > 0 and mode in ('fair', 'free') then
                -- More than was seen of a group may stand behind it.
                wants := array(select least(most_in_flight, w.want + room / cardinality(wants) + case when w.place <= room % cardinality(wants) then 1 else 0 end)
                               from unnest(wants) with ordinality w (want, place) order by w.place);
            end if;
            runs := runs || spanmq.take_groups(this_queue, hashes, wants, missing, lease, until, at_, slots, mode, most_in_flight);
            missing := quantity - spanmq.count_runs(runs);
            taken_hashes := taken_hashes || hashes;
            taken_wants := taken_wants || wants;
        end if;
        exit when missing = 0 or cardinality(taken_hashes) >= 500;
        -- Nobody's turn: then the oldest's after all.
        with_left := is_cut_short or round = 1 and quantity = 1 and mode in ('fair', 'free') and not is_odd;
        room_left := missing;
        exit when not with_left and (runs <> '{}' or n_looked < 500);
    end loop;
    if missing > 0 and runs <> '{}' and mode in ('fair', 'free') then
        runs := spanmq.take_more(this_queue, taken_hashes, taken_wants, missing, lease, until, at_, slots, mode, most_in_flight, runs);
    elsif mode = 'rr' and runs <> '{}' then
        select array_agg(r order by array_position(taken_hashes, r.group_hash), r.lo) into runs from unnest(runs) r;
        runs := spanmq.layer(runs);
    end if;
    if there_is_more then
        perform spanmq.set_turn(this_queue, turn, is_odd <> (quantity = 1 or mode = 'free'));
    end if;
    if runs = '{}' and is_hinted then
        -- Found nothing along the hint: looks again from the left.
        perform spanmq.forget_hint(this_queue);
        return spanmq.claim_groups(this_queue, quantity, lease, until, at_, slots, mode, most_in_flight);
    elsif until <= at_ then
        perform spanmq.forget_hint(this_queue);
    end if;
    return runs;
end $$;

-- Goes on with a claim that gave `missing` messages fewer than were wanted, with those groups that gave all that they were asked for:
-- more may stand behind it. Returns `runs` with what it took.
create or replace function spanmq.take_more(
    this_queue int, hashes bigint[], wants int[], missing int, lease bigint, until timestamptz, at_ timestamptz, slots int, mode text,
    most_in_flight int, runs spanmq.run[]
) returns spanmq.run[]
language plpgsql as $$
declare
    took spanmq.run[] := runs;
begin
    -- In equal parts, so that it locks hardly more than it takes. Each round but the last one empties a group.
    for round in 1 .. 5 loop
        select array_agg(g.hash order by g.place), array_agg(least(missing / g.n + 1, most_in_flight)) into hashes, wants
            from (select w.hash, w.place, count(*) over () as n
                  from unnest(hashes, wants) with ordinality w (hash, want, place)
                  join (select coalesce(r.group_hash, 0) as hash, sum(r.n) as n from unnest(took) r group by 1) t on t.hash = coalesce(w.hash, 0)
                  where t.n >= w.want) g;
        exit when hashes is null;
        took := spanmq.take_groups(this_queue, hashes, wants, missing, lease, until, at_, slots, mode, most_in_flight);
        runs := runs || took;
        missing := missing - spanmq.count_runs(took);
        exit when missing = 0 or took = '{}';
    end loop;
    return runs;
end $$;

-- Takes the head runs of groups whose locks the caller has, at most wants[i] messages of hashes[i] and `quantity` of all, under
-- the rules of claim_groups(). A group that is blocked after all gives nothing; where another holds a span, nothing behind it. What this
-- lease has already of a group does not block it.
create or replace function spanmq.take_groups(
    this_queue int, hashes bigint[], wants int[], quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, mode text, most_in_flight int
) returns spanmq.run[]
language plpgsql as $$
declare
    expired spanmq.span[];
    this spanmq.span;
    los bigint[];
    leases bigint[];
    taken int[];
begin
    for attempt in 1 .. 2 loop
        with groups as (
            select g.hash, g.want, g.place from unnest(hashes, wants) with ordinality g (hash, want, place)),
        -- What was delivered and not settled: it blocks, or came back.
        delivered as materialized (
            select g.place, s.this, (s.this).vt > at_ or (s.this).lease_id is not distinct from lease as is_hidden,
                   mode <> 'free' and (s.this).vt > at_ and (s.this).lease_id is distinct from lease and spanmq.holds_any(s.this) as blocks,
                   case when (s.this).state = 'l' and (mode = 'free' and (s.this).vt > at_ or (s.this).lease_id is not distinct from lease)
                        then (s.this).n else 0 end as n_leased
            from groups g
            cross join lateral (
                (select s as this from spanmq.span s
                    where s.queue_id + 0 = this_queue and s.group_hash = g.hash and s.group_hash is not null
                      and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1
                      and s.lo + 0 >= (select q.settled_to from spanmq.queue q where q.queue_id = this_queue))
                union all
                (select s from spanmq.span s
                    where g.hash is null and s.queue_id = this_queue and s.state <> 'r' and s.group_hash is null and s.attempts > 0)) s),
        in_flight as materialized (
            select d.place, sum(d.n_leased)::int as n from delivered d where d.n_leased > 0 group by d.place),
        free as materialized (
            select g.place, g.hash,
                   case when f.n is null or most_in_flight is null then least(g.want, most_in_flight)
                        when g.want + f.n <= most_in_flight then g.want
                        -- Of these spans messages may have left one by one.
                        else least(g.want, most_in_flight - (select sum(spanmq.count_left(d.this)) from delivered d
                                                             where d.place = g.place and d.n_leased > 0))::int end as want
            from groups g
            left join in_flight f on f.place = g.place
            where g.place not in (select d.place from delivered d where d.blocks)
              and (select true from spanmq.blocked_group b where b.queue_id = this_queue and b.group_hash = g.hash
                     and (select p.dead_letter_blocks_group from spanmq.policy p where p.queue_id = b.queue_id) limit 1) is null),
        heads as materialized (
            select f.place, f.want, s.lo, s.lease_id, s.state = 'w' and s.vt > at_ as is_delayed
            from free f
            cross join lateral (
                (select * from spanmq.span s
                    where s.queue_id + 0 = this_queue and s.group_hash = f.hash and s.group_hash is not null
                      and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0
                      and s.lo + 0 >= (select q.settled_to from spanmq.queue q where q.queue_id = this_queue)
                      -- What is delayed ends a run where there is order; where there is none it must not take the place of what stands behind it.
                      and (mode <> 'free' or s.state = 'r' or s.vt <= at_)
                    order by s.lo + 0 limit greatest(f.want, 0))
                union all
                (select * from spanmq.span s
                    where f.hash is null and s.queue_id = this_queue and s.state = 'r' and s.group_hash is null
                      and s.lo >= (select q.settled_to from spanmq.queue q where q.queue_id = this_queue)
                    order by s.lo limit greatest(f.want, 0))
                union all
                (select * from spanmq.span s
                    where f.hash is null and s.queue_id = this_queue and s.state = 'w' and s.group_hash is null and s.attempts = 0
                    order by s.vt limit 1000)) s
            union all
            select f.place, f.want, (d.this).lo, (d.this).lease_id, false
            from free f join delivered d on d.place = f.place and not d.is_hidden),
        -- Skip what another holds this instant. The span as it is now, under its lock.
        locked as materialized (
            select h.place, h.want, s.lo, s.lease_id, s.n, s.ids
            from heads h
            cross join lateral (
                select * from spanmq.span s
                where s.queue_id = this_queue and s.lo = h.lo and s.lease_id = h.lease_id and (s.state = 'r' or s.vt <= at_)
                for update skip locked) s
            where not h.is_delayed),
        ends as (
            select h.place, min(h.lo) as lo from heads h
            where mode <> 'free' and not exists (select from locked l where l.place = h.place and l.lo = h.lo and l.lease_id = h.lease_id)
            group by h.place),
        messages as (
            select l.place, l.want, l.lo, l.lease_id, l.n, m.id, row_number() over (partition by l.place order by m.id) as layer
            from locked l
            cross join lateral (
                select l.lo + step as id from generate_series(0, least(l.n, l.want) - 1) step where l.ids is null
                union all
                (select e.id from spanmq.expand(l.lo, l.n, l.ids) e (id) where l.ids is not null order by e.id limit greatest(l.want, 0))) m
            left join ends e on e.place = l.place
            where m.id < e.lo is not false),
        kept as (
            select m.lo, m.lease_id, m.n from messages m where m.layer <= m.want
            order by case when mode in ('rr', 'fair', 'free') then m.layer end, m.place, m.layer limit quantity),
        spans as (
            select k.lo, k.lease_id, count(*)::int as taken, min(k.n) as n from kept k group by k.lo, k.lease_id)
        select array_agg(s.lo), array_agg(s.lease_id), array_agg(case when s.taken < s.n then s.taken end),
               (select array_agg(d.this) from delivered d where (d.this).lease_id > 0 and not d.is_hidden)
            into los, leases, taken, expired
            from spans s;
        exit when expired is null or attempt = 2;
        -- Messages may have left a lease that ran out: only under its lock is it seen which.
        foreach this in array expired loop
            perform spanmq.lock_visible(this_queue, this.lo, this.lease_id, at_);
        end loop;
    end loop;
    if los is null then
        return '{}';
    end if;
    return spanmq.take_spans(this_queue, los, leases, taken, lease, until, at_, slots);
end $$;

-- How many messages a leased span still holds: without those that left it one by one.
create or replace function spanmq.count_left(this spanmq.span) returns int
language plpgsql as $$
begin
    return this.n - (
        select count(*) from spanmq.settled x
        where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id between this.lo and this.lo | 255
          and case when this.ids is null then x.msg_id < this.lo + this.n else this.ids @> x.msg_id end);
end $$;

-- False for a leased span that everything has left, and that only nobody has swept yet. A span of one message has no notes, unless it
-- shrank to that: then it has its ids. In SQL, so that it becomes part of the statement that asks.
create or replace function spanmq.holds_any(this spanmq.span) returns boolean
language sql as $$
    select this.state <> 'l' or this.n = 1 and this.ids is null or spanmq.count_left(this) > 0
$$;

-- How many messages of a queue are leased by leases that have not run out.
create or replace function spanmq.count_in_flight(this_queue int, at_ timestamptz) returns int
language plpgsql as $$
begin
    return (select coalesce(sum(case when s.n = 1 then 1 else spanmq.count_left(s) end), 0)
            from spanmq.span s where s.queue_id = this_queue and s.state = 'l' and s.vt > at_);
end $$;
