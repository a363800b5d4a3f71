-- Claims of queues whose groups have a rate or a share: which messages their limits allow.

-- Takes messages of groups that have a token, and no more in flight than they may. Looks at the oldest messages, the
-- lowest ids first; where these do not suffice, at the newest ones, and at groups whose bucket has just got a token;
-- where all these give none, at the next 500 groups of the ring (turn.sql). So a backlog of groups without tokens costs
-- a claim about the same, whatever its length. With group_shares the ring comes first. Locks the groups that it takes
-- from, to the end of the transaction; never waits.
create or replace function spanmq_core.take_open(
    policy spanmq_core.policy, quantity int, at_ timestamptz, waits boolean
) returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(policy.queue_id);
    shares boolean := policy.group_shares is not null;
    phase text;
    n_looked bigint;
    enough int;
    found_all boolean := false;
    hashes bigint[];
    near record;           -- messages, and the hashes of their groups, 0 for none
    pool_ids bigint[] := '{}';
    pool_hashes bigint[] := '{}';
    ids bigint[];
    took bigint[];
begin
    perform spanmq_core.check_isolation('a grouped read',
                                        'It needs a snapshot that was taken after the lock of the group.')
        where not spanmq_core.sees_now();
    -- A claim locks a bounded number of groups.
    quantity := least(quantity, 500);
    foreach phase in array case when shares then '{ring, near, far, new}' else '{near, far, new, ring}' end::text[] loop
        if phase in ('near', 'far') then
            n_looked := case when phase = 'near' then quantity else 4::bigint * quantity + 60 end;
            near := spanmq_core.oldest_among(policy.queue_id, n_looked, bound, at_, waits);
            found_all := near.n < n_looked;
        else
            hashes := case when phase = 'ring' then spanmq_core.ring_groups(policy, quantity, bound, at_)
                      else spanmq_core.opened_groups(policy) end;
            if phase = 'new' then
                near := spanmq_core.newest_among(policy.queue_id, bound, at_);
                pool_ids := pool_ids || near.ids;
                pool_hashes := pool_hashes || near.hashes;
            elsif 0 = any (hashes) then
                near := spanmq_core.loose_among(policy.queue_id, quantity, bound, at_, waits);
                pool_ids := pool_ids || near.ids;
                pool_hashes := pool_hashes || near.hashes;
            end if;
            near := spanmq_core.firsts_of(policy.queue_id, hashes, quantity, bound, at_, waits);
        end if;
        pool_ids := pool_ids || near.ids;
        pool_hashes := pool_hashes || near.hashes;
        enough := case when phase = 'near' or phase = 'ring' and shares then quantity
                  when phase = 'far' then (quantity + 1) / 2 else 1 end;
        -- Again without them, where others have locked all groups of those that were chosen.
        for round in 1 .. 30 loop
            ids := spanmq_core.open_among(policy, pool_ids, pool_hashes, quantity, at_);
            exit when ids = '{}' or not found_all and cardinality(ids) < enough;
            took := spanmq_core.take_locked(policy, ids, pool_ids, pool_hashes, quantity, at_);
            if took <> '{}' then
                return took;
            end if;
            select coalesce(array_agg(p.id), '{}'), coalesce(array_agg(p.hash), '{}') into pool_ids, pool_hashes
                from unnest(pool_ids, pool_hashes) p (id, hash)
                where p.hash <> all (array(select w.hash from unnest(pool_ids, pool_hashes) w (id, hash)
                                           where w.id = any (ids)));
        end loop;
        exit when found_all;
    end loop;
    return '{}';
end $$;

-- Locks the groups of these messages of the pool, and then the messages which their limits allow: new statements see
-- what others had taken before. Returns their ids.
create or replace function spanmq_core.take_locked(
    policy spanmq_core.policy, ids bigint[], pool_ids bigint[], pool_hashes bigint[], quantity int, at_ timestamptz
) returns bigint[]
language plpgsql as $$
declare
    slots int[];
    mine record;
begin
    if not spanmq_core.has_group_locks(policy.queue_id) then
        return '{}';
    end if;
    slots := spanmq_core.lock_slots(policy.queue_id, array(
        select w.hash from unnest(pool_ids, pool_hashes) w (id, hash) where w.id = any (take_locked.ids)));
    if slots is null then
        return '{}';
    end if;
    select array_agg(w.id) as ids, array_agg(w.hash) as hashes into mine
        from unnest(pool_ids, pool_hashes) w (id, hash)
        where spanmq_core.slot_of(policy.queue_id, w.hash) = any (slots);
    return spanmq_core.lock_visible(
        policy.queue_id, spanmq_core.open_among(policy, mine.ids, mine.hashes, quantity, at_), at_);
end $$;

-- The first n_looked visible messages of state, and as many of later: their ids, and the hashes of their groups.
create or replace function spanmq_core.oldest_among(
    this_queue int, n_looked bigint, bound spanmq_core.bound, at_ timestamptz, waits boolean, out ids bigint[],
    out hashes bigint[], out n bigint
)
language plpgsql as $$
begin
    select coalesce(array_agg(c.msg_id), '{}'), coalesce(array_agg(coalesce(c.group_hash, 0)), '{}'), count(*)
        into ids, hashes, n
        from ((select h.msg_id, h.group_hash from spanmq_core.later h
               where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                 and (h.alone = 0 or waits is null)
               order by h.queue_id + 0, h.vt, h.msg_id + 0 limit n_looked)
              union all
              (select s.msg_id, s.group_hash from spanmq_core.state s
               where s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
               order by s.queue_id, s.msg_id limit n_looked)) c;
end $$;

-- The same, the newest 100 of state.
create or replace function spanmq_core.newest_among(
    this_queue int, bound spanmq_core.bound, at_ timestamptz, out ids bigint[], out hashes bigint[], out n bigint
)
language plpgsql as $$
begin
    select coalesce(array_agg(c.msg_id), '{}'), coalesce(array_agg(coalesce(c.group_hash, 0)), '{}'), count(*)
        into ids, hashes, n
        from (select s.msg_id, s.group_hash from spanmq_core.state s
              where s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
              order by s.queue_id desc, s.msg_id desc limit 100) c;
end $$;

-- The same, the first ones of these groups: of each its part of four times the quantity.
create or replace function spanmq_core.firsts_of(
    this_queue int, groups bigint[], quantity int, bound spanmq_core.bound, at_ timestamptz, waits boolean,
    out ids bigint[], out hashes bigint[], out n bigint
)
language plpgsql as $$
declare
    most int := ceil(4.0 * quantity / greatest(cardinality(groups), 1));
begin
    select coalesce(array_agg(c.msg_id), '{}'), coalesce(array_agg(g.hash), '{}'), count(*) into ids, hashes, n
        from unnest(groups) g (hash)
        cross join lateral (
            (select s.msg_id from spanmq_core.state s
             where s.queue_id + 0 = this_queue and s.group_hash = g.hash and s.group_hash is not null
               and s.msg_id >= bound.from_id and s.vt <= at_
             order by s.queue_id + 0, s.group_hash, s.msg_id limit most)
            union all
            (select h.msg_id from spanmq_core.later h
             where h.queue_id + 0 = this_queue and h.group_hash = g.hash and h.group_hash is not null
               and h.vt >= bound.due_from and h.vt <= at_ and (h.alone = 0 or waits is null)
             order by h.queue_id + 0, h.group_hash, h.vt limit most)) c;
end $$;

-- The groups whose bucket has got its first token last, up to 100.
create or replace function spanmq_core.opened_groups(policy spanmq_core.policy) returns bigint[]
language plpgsql as $$
declare
    latest bigint := spanmq_core.now_ns() + spanmq_core.room_of(policy)
                     - spanmq_core.token_ns(policy.rate_limit_per_group);
begin
    return array(
        select b.group_hash from spanmq_core.bucket b
        where b.queue_id + 0 = policy.queue_id and b.group_hash <> 0
          and b.full_ns <= latest
        order by b.queue_id + 0 desc, b.full_ns desc limit 100);
end $$;

-- The same, of messages without a group, from where find_ungrouped() finds one.
create or replace function spanmq_core.loose_among(
    this_queue int, quantity int, bound spanmq_core.bound, at_ timestamptz, waits boolean, out ids bigint[],
    out hashes bigint[], out n bigint
)
language plpgsql as $$
begin
    bound.from_id := spanmq_core.find_ungrouped(this_queue, bound, at_, false);
    select coalesce(array_agg(u.id) filter (where u.hash = 0), '{}'),
           coalesce(array_agg(u.hash) filter (where u.hash = 0), '{}'), count(*)
        into ids, hashes, n
        from spanmq_core.oldest_among(this_queue, 500, bound, at_, waits) o
        cross join lateral unnest(o.ids, o.hashes) u (id, hash)
        where bound.from_id is not null;
    ids := ids[1:2 * quantity];
    hashes := hashes[1:2 * quantity];
end $$;

-- The next groups on the ring that have a visible message and a token, 0 for the messages without a group: as many as
-- messages are wanted, with group_shares a quarter, up to 100, among the next 500.
create or replace function spanmq_core.ring_groups(
    policy spanmq_core.policy, quantity int, bound spanmq_core.bound, at_ timestamptz
) returns bigint[]
language plpgsql as $$
declare
    this_queue int := policy.queue_id;
    turn bigint := spanmq_core.get_turn(this_queue) | 31;
    room bigint := spanmq_core.room_of(policy);
    at_ns bigint := spanmq_core.now_ns();
    wanted int := least(case when policy.group_shares is null then quantity else (quantity::bigint + 3) / 4 end, 100);
    hashes bigint[] := '{}';
    passed bigint[] := '{}';
    step record;
begin
    for step in
        with recursive ring (hash, n_wraps, place) as (
            select turn, 0, 0
            union all
            select coalesce(f.hash, -9223372036854775808), r.n_wraps + (f.hash is null)::int, r.place + 1
            from ring r
            cross join lateral (
                select least(
                    (select s.group_hash from spanmq_core.state s
                     where s.queue_id + 0 = this_queue and s.group_hash > r.hash and s.group_hash is not null
                     order by s.queue_id + 0, s.group_hash, s.msg_id limit 1),
                    (select h.group_hash from spanmq_core.later h
                     where h.queue_id + 0 = this_queue and h.group_hash > r.hash and h.group_hash is not null
                     order by h.queue_id + 0, h.group_hash, h.vt limit 1)) as hash
                -- Otherwise it is a part of both expressions, and runs twice.
                offset 0) f
            where r.place < 500 and r.n_wraps < 2 and (r.n_wraps = 0 or r.hash <= turn))
        select r.hash, g.hash as group_hash,
               policy.rate_limit_per_group is null
               or spanmq_core.tokens_at(policy, b.full_ns, at_ns, room) > 0 as is_open
        from ring r
        -- The ring begins anew after the messages without a group.
        cross join lateral (select case when r.hash = -9223372036854775808 then 0 else r.hash end as hash) g
        left join spanmq_core.bucket b on b.queue_id = this_queue and b.group_hash = g.hash
        where r.place > 0 and r.n_wraps < 2
    loop
        turn := step.hash;
        continue when not step.is_open or case
            when step.group_hash = 0 then spanmq_core.find_ungrouped(this_queue, bound, at_, false) is null
            else not exists (select from spanmq_core.state s
                             where s.queue_id + 0 = this_queue and s.group_hash = step.group_hash
                               and s.group_hash is not null and s.msg_id >= bound.from_id and s.vt <= at_)
                 and not exists (select from spanmq_core.later h
                                 where h.queue_id + 0 = this_queue and h.group_hash = step.group_hash
                                   and h.group_hash is not null and h.vt >= bound.due_from and h.vt <= at_) end;
        -- Where each claim takes of one group, one of a low weight is passed at random. Else see open_among().
        if wanted > 1 or random() < spanmq_core.share_of(policy, step.group_hash) then
            hashes := hashes || step.group_hash;
        else
            passed := passed || step.group_hash;
        end if;
        exit when cardinality(hashes) = wanted;
    end loop;
    perform spanmq_core.set_turn(this_queue, turn, false);
    return case when hashes = '{}' then passed[1:wanted] else hashes end;
end $$;

-- The weight of a group as a part of the greatest one; those that group_shares does not name have 1.
create or replace function spanmq_core.share_of(policy spanmq_core.policy, hash bigint) returns double precision
language plpgsql as $$
begin
    if policy.group_shares is null or policy.group_shares = '{}' then
        return 1;
    end if;
    return (select coalesce(max(w.weight) filter (where hashtextextended(w.name, 0) = share_of.hash), 1)
                   / greatest(max(w.weight), 1)
            from (select s.key as name, s.value::text::double precision as weight
                  from jsonb_each(policy.group_shares) s) w);
end $$;

-- The first `quantity` of these messages, with the hashes of their groups, that the limits of the groups allow: by id;
-- with group_shares as many of each group as its weight says.
create or replace function spanmq_core.open_among(
    policy spanmq_core.policy, ids bigint[], hashes bigint[], quantity int, at_ timestamptz
) returns bigint[]
language plpgsql as $$
declare
    room bigint := spanmq_core.room_of(policy);
    at_ns bigint := spanmq_core.now_ns();
    now_at timestamptz := clock_timestamp();
    has_closed boolean := exists (select from spanmq_core.closed_group k where k.queue_id + 0 = policy.queue_id
                                  and k.until > now_at);
begin
    return array(
        select c.id
        from (select w.id, w.hash, b.full_ns,
                     row_number() over (partition by w.hash order by w.id) as place, coalesce(s.weight, 1) as weight
              from (select distinct u.id, u.hash from unnest(ids, hashes) u (id, hash)) w
              left join spanmq_core.bucket b on b.queue_id = policy.queue_id and b.group_hash = w.hash
              left join (select hashtextextended(e.key, 0) as hash, e.value::text::double precision as weight
                         from jsonb_each(policy.group_shares) e) s on s.hash = w.hash) c
        where (policy.rate_limit_per_group is null
               or c.place <= spanmq_core.tokens_at(policy, c.full_ns, at_ns, room))
          and (not has_closed or spanmq_core.closed_until(policy.queue_id, c.hash) is null)
          and (policy.max_in_flight_per_group is null
               or c.place <= policy.max_in_flight_per_group
                             - (spanmq_core.hidden_of(policy.queue_id, nullif(c.hash, 0), at_)).in_flight)
          and not (policy.dead_letter_blocks_group
                   and exists (select from spanmq_core.blocked_group k
                               where k.queue_id = policy.queue_id and k.group_hash = c.hash))
        order by case when policy.group_shares is not null then c.place / c.weight end, c.id limit quantity);
end $$;
