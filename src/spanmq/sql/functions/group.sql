-- twin: unlogged
-- Ordered groups. A group is blocked while one of its messages is leased or waits after a delivery; its run ends where a
-- delayed message stands. Messages without a group are one group, `_default_fifo_group`, as in PGMQ.

-- Claims the head runs of groups that are not blocked. mode: fill (as much as there is of the oldest group, then of the next),
-- rr (one of each group in turn, oldest group first), head (one of each). Looks first at the groups at the left of the queue,
-- oldest first; then, if that was not enough, at up to 500 more from a random place on, so that no backlog hides a free group.
-- Returns runs in the order of delivery.
create or replace function spanmq.claim_groups(
    this_queue int, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, mode text
) returns spanmq.run[]
language plpgsql as $$
declare
    candidate record;
    runs spanmq.run[] := '{}';
    tried bigint[] := '{}';
    keys text[] := '{}';          -- rr: the groups whose lock we have, and how many messages they could give
    available int[] := '{}';
    taken int := 0;
    n int;
    place bigint;
    random_from bigint;
    wrapped boolean := false;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'grouped reads need READ COMMITTED, not %', upper(current_setting('transaction_isolation'))
            using errcode = 'MQ003', hint = 'Whether a group is free can be judged only by a statement begun after its lock was taken.';
    end if;
    if quantity = 0 then
        return runs;
    end if;
    for candidate in
        select c.group_key, min(c.lo) as lo from (
            (select s.group_key, s.lo from spanmq.span s where s.queue_id = this_queue and s.state = 'r'
                order by s.lo limit 64 + 4 * least(quantity, 1000))
            union all
            (select s.group_key, s.lo from spanmq.span s where s.queue_id = this_queue and s.state <> 'r' and s.vt <= at_
                order by s.vt limit 1000)
        ) c group by c.group_key order by 2
    loop
        exit when taken >= quantity or cardinality(tried) >= 500;
        if candidate.group_key is not null then
            tried := tried || hashtextextended(candidate.group_key, 0);
        end if;
        n := spanmq.lock_group(this_queue, candidate.group_key, at_, case mode when 'head' then 1 else quantity - taken end);
        continue when n = 0;
        if mode = 'rr' then
            keys := keys || candidate.group_key;
            available := available || n;
            exit when cardinality(keys) >= quantity;
        else
            runs := runs || spanmq.take_group(this_queue, candidate.group_key, at_, n);
            taken := taken + n;
        end if;
    end loop;

    if taken < quantity and cardinality(keys) < quantity and cardinality(tried) < 500 then
        random_from := (random() * 2 - 1) * 9.2e18;
        place := random_from;
        loop
            select s.group_hash, s.group_key into candidate from spanmq.span s
                where s.queue_id = this_queue and s.group_hash > place and s.group_hash is not null
                order by s.queue_id, s.group_hash limit 1;
            if not found then
                exit when wrapped;
                wrapped := true;
                place := -9223372036854775808;
                continue;
            end if;
            place := candidate.group_hash;
            exit when wrapped and place > random_from;
            continue when place = any (tried);
            tried := tried || place;
            exit when cardinality(tried) > 500;
            n := spanmq.lock_group(this_queue, candidate.group_key, at_, case mode when 'head' then 1 else quantity - taken end);
            continue when n = 0;
            if mode = 'rr' then
                keys := keys || candidate.group_key;
                available := available || n;
                exit when cardinality(keys) >= quantity;
            else
                runs := runs || spanmq.take_group(this_queue, candidate.group_key, at_, n);
                taken := taken + n;
                exit when taken >= quantity;
            end if;
        end loop;
    end if;

    if mode = 'rr' and keys <> '{}' then
        for candidate in
            select keys[r.group_number] as group_key, count(*)::int as n
            from (select a.group_number, row_number() over (order by layer, a.group_number) as place
                  from unnest(available) with ordinality a (n, group_number), generate_series(1, a.n) layer) r
            where r.place <= quantity group by r.group_number order by r.group_number
        loop
            runs := runs || spanmq.take_group(this_queue, candidate.group_key, at_, candidate.n);
        end loop;
    end if;
    runs := array(select r from unnest(runs) r where r.n > 0);
    if slots > 1 and runs <> '{}' then
        runs := spanmq.cut(runs, ceil(spanmq.count_runs(runs) / slots::numeric)::int);
    end if;
    if lease is not null and runs <> '{}' then
        perform spanmq.insert_leased(this_queue, lease, until, at_, runs);
    end if;
    if mode = 'rr' then
        runs := spanmq.layer(runs);
    end if;
    return runs;
end $$;

-- How many messages, up to `wanted`, the head run of a group can give; 0 if it is blocked or another receiver is at it.
-- Locks the group to the end of the transaction, if it looked free. What it returns was seen under that lock.
create or replace function spanmq.lock_group(this_queue int, key text, at_ timestamptz, wanted int) returns int
language plpgsql as $$
begin
    -- Look before: a blocked group costs no lock. Locks are held to commit and their number is bounded for the whole server.
    if spanmq.is_blocked(this_queue, key, at_) then
        return 0;
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('spanmq.group.' || this_queue || coalesce('.' || key, ''), 0)) then
        return 0;
    end if;
    -- And look again, in a new statement: the one who held the lock may have just committed.
    if spanmq.is_blocked(this_queue, key, at_) then
        return 0;
    end if;
    return spanmq.head_run(this_queue, key, at_, wanted);
end $$;

create or replace function spanmq.is_blocked(this_queue int, key text, at_ timestamptz) returns boolean
language plpgsql as $$
begin
    if key is not null then
        return exists (
            select from spanmq.span s
            where s.queue_id = this_queue and s.group_hash = hashtextextended(key, 0) and s.group_hash is not null and s.group_key = key
              and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1 and s.vt > at_ and spanmq.holds_any(s));
    end if;
    return exists (
        select from spanmq.span s
        where s.queue_id = this_queue and s.state <> 'r' and s.vt > at_ and s.group_hash is null and s.attempts > 0 and spanmq.holds_any(s));
end $$;

-- False for a leased span that everything has left, and that only nobody has swept yet.
create or replace function spanmq.holds_any(this spanmq.span) returns boolean
language plpgsql as $$
begin
    return this.state <> 'l' or (
        select count(*) from spanmq.settled x
        where x.queue_id = this.queue_id and x.lease_id = this.lease_id and x.msg_id between this.lo and this.lo | 255
          and case when this.ids is null then x.msg_id < this.lo + this.n else this.ids @> x.msg_id end) < this.n;
end $$;

-- The spans of a group that is not blocked, by lo: those that may be delivered and the first that may not (vt > at_).
-- A cursor would be locked by who fetches; this only looks.
create or replace function spanmq.group_spans(this_queue int, key text, at_ timestamptz) returns setof spanmq.span
language plpgsql rows 10 as $$
begin
    if key is not null then
        return query
            (select s.* from spanmq.span s
                where s.queue_id = this_queue and s.group_hash = hashtextextended(key, 0) and s.group_hash is not null and s.group_key = key
                  and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 1)
            union all
            (select s.* from spanmq.span s
                where s.queue_id = this_queue and s.group_hash = hashtextextended(key, 0) and s.group_hash is not null and s.group_key = key
                  and case when s.state = 'l' or s.state = 'w' and s.attempts > 0 then 1 else 0 end = 0
                order by s.lo limit 1000)
            order by lo;
    else
        return query
            (select s.* from spanmq.span s where s.queue_id = this_queue and s.state <> 'r' and s.group_hash is null
                and s.vt <= at_ limit 1000)
            union all
            (select s.* from spanmq.span s where s.queue_id = this_queue and s.state = 'w' and s.group_hash is null
                and s.attempts = 0 and s.vt > at_ order by s.lo limit 1)
            union all
            (select s.* from spanmq.span s where s.queue_id = this_queue and s.state = 'r' and s.group_hash is null
                order by s.lo limit 1000)
            order by lo;
    end if;
end $$;

create or replace function spanmq.head_run(this_queue int, key text, at_ timestamptz, wanted int) returns int
language plpgsql as $$
declare
    this spanmq.span;
    n int := 0;
begin
    for this in select * from spanmq.group_spans(this_queue, key, at_) loop
        -- Everything has left this lease, and nobody swept it yet: else the group were blocked.
        continue when this.state = 'l' and this.vt > at_;
        exit when n >= wanted or this.state = 'w' and this.vt > at_;
        -- What left an expired span is counted here; take_group() gives less then.
        n := n + this.n;
    end loop;
    return least(n, wanted);
end $$;

-- Takes the first `wanted` messages of a group whose lock the caller has, in the order of their ids whatever their spans.
-- Gives less where another holds a span: nothing behind it is taken.
create or replace function spanmq.take_group(this_queue int, key text, at_ timestamptz, wanted int) returns spanmq.run[]
language plpgsql as $$
declare
    candidate spanmq.span;
    this spanmq.span;
    spans spanmq.span[] := '{}';
    ids int8multirange := '{}';
    here int8multirange;
    last_id bigint := 9223372036854775806;
    runs spanmq.run[] := '{}';
begin
    for candidate in select * from spanmq.group_spans(this_queue, key, at_) loop
        continue when candidate.state = 'l' and candidate.vt > at_;
        if candidate.state = 'w' and candidate.vt > at_ then
            last_id := least(last_id, candidate.lo - 1);
            exit;
        end if;
        exit when candidate.lo > last_id;
        this := spanmq.lock_visible(this_queue, candidate.lo, candidate.lease_id, at_);
        if this.lo is null then
            last_id := least(last_id, candidate.lo - 1);
            exit;
        end if;
        continue when this.n = 0;
        spans := spans || this;
        ids := ids + spanmq.ids_of(this.lo, this.n, this.ids);
        if spanmq.count_ids(ids) >= wanted then
            last_id := upper(spanmq.first_ids(ids, wanted)) - 1;
        end if;
    end loop;
    foreach this in array spans loop
        here := spanmq.ids_of(this.lo, this.n, this.ids) * int8multirange(int8range(null, last_id, '[]'));
        continue when isempty(here);
        runs := runs || spanmq.cut_out(this_queue, this.lo, this.lease_id, here);
    end loop;
    return (select coalesce(array_agg(r order by r.lo), '{}') from unnest(runs) r where r.n > 0);
end $$;
