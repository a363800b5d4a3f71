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
    enough int;
    next record;
    pool_ids bigint[] := '{}';
    pool_hashes bigint[] := '{}';      -- of their groups, 0 for none
    ids bigint[];
    slots int[];
    took bigint[];
begin
    perform spanmq_core.check_isolation('a grouped read',
                                        'It needs a snapshot that was taken after the lock of the group.')
        where not spanmq_core.sees_now();
    -- A claim locks a bounded number of groups.
    quantity := least(quantity, 500);
    foreach phase in array case when shares then '{ring, near, far, new}' else '{near, far, new, ring}' end::text[] loop
        next := spanmq_core.visible_in_groups(policy, phase, quantity, bound, at_, waits);
        pool_ids := pool_ids || next.ids;
        pool_hashes := pool_hashes || next.hashes;
        enough := case when phase = 'near' or phase = 'ring' and shares then quantity
                  when phase = 'far' then (quantity + 1) / 2 else 1 end;
        -- Again without them, where others have locked all groups of those that were chosen.
        for round in 1 .. 30 loop
            ids := spanmq_core.open_among(policy, pool_ids, pool_hashes, quantity, at_);
            exit when ids = '{}' or not next.are_all and cardinality(ids) < enough;
            -- Locks their groups, and then the messages of these which their limits allow: new statements see what
            -- others had taken before.
            slots := case when spanmq_core.has_group_locks(policy.queue_id)
                     then spanmq_core.lock_slots(policy.queue_id, array(
                         select w.hash from unnest(pool_ids, pool_hashes) w (id, hash) where w.id = any (ids))) end;
            if slots is not null then
                select spanmq_core.lock_visible(policy.queue_id, spanmq_core.open_among(
                           policy, array_agg(w.id), array_agg(w.hash), quantity, at_), at_) into took
                    from unnest(pool_ids, pool_hashes) w (id, hash)
                    where spanmq_core.slot_of(policy.queue_id, w.hash) = any (slots);
                if took <> '{}' then
                    return took;
                end if;
            end if;
            select coalesce(array_agg(p.id), '{}'), coalesce(array_agg(p.hash), '{}') into pool_ids, pool_hashes
                from unnest(pool_ids, pool_hashes) p (id, hash)
                where p.hash <> all (array(select w.hash from unnest(pool_ids, pool_hashes) w (id, hash)
                                           where w.id = any (ids)));
        end loop;
        exit when next.are_all;
    end loop;
    return '{}';
end $$;

-- What a phase of take_open() looks at: visible messages, and the hashes of their groups, 0 for none. near, far: the
-- oldest ones, and whether there are no others. ring: those of the next groups of the ring. new: the newest 100 of
-- state, and those of the 100 groups whose bucket has got its first token last.
create or replace function spanmq_core.visible_in_groups(
    policy spanmq_core.policy, phase text, quantity int, bound spanmq_core.bound, at_ timestamptz, waits boolean,
    out ids bigint[], out hashes bigint[], out are_all boolean
)
language plpgsql as $$
declare
    this_queue int := policy.queue_id;
    most bigint := case when phase = 'near' then quantity else 4::bigint * quantity + 60 end;
    latest bigint;
    groups bigint[];
    ungrouped_id bigint;
begin
    if phase in ('near', 'far') then
        -- As many of state as of later.
        select coalesce(array_agg(c.msg_id), '{}'), coalesce(array_agg(coalesce(c.group_hash, 0)), '{}'),
               count(*) < most
            into ids, hashes, are_all
            from ((select h.msg_id, h.group_hash from spanmq_core.later h
                   where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                     and (h.alone = 0 or waits is null)
                   order by h.queue_id + 0, h.vt, h.msg_id + 0 limit most)
                  union all
                  (select s.msg_id, s.group_hash from spanmq_core.state s
                   where s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
                   order by s.queue_id, s.msg_id limit most)) c;
        return;
    end if;
    are_all := false;
    if phase = 'ring' then
        groups := spanmq_core.ring_groups(policy, quantity, bound, at_);
        if 0 = any (groups) then
            ungrouped_id := spanmq_core.find_ungrouped(this_queue, bound, at_, at_, false);
        end if;
    else
        latest := spanmq_core.now_ns()
                  + spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group)
                  - spanmq_core.token_ns(policy.rate_limit_per_group);
        groups := array(
            select b.group_hash from spanmq_core.bucket b
            where b.queue_id + 0 = this_queue and b.group_hash <> 0 and b.full_ns <= latest
            order by b.queue_id + 0 desc, b.full_ns desc limit 100);
    end if;
    -- Of each group its part of four times the quantity.
    most := ceil(4.0 * quantity / greatest(cardinality(groups), 1));
    select coalesce(array_agg(c.msg_id), '{}'), coalesce(array_agg(coalesce(c.group_hash, 0)), '{}') into ids, hashes
        from (select f.msg_id, g.hash as group_hash from unnest(groups) g (hash)
              cross join lateral (
                  (select s.msg_id from spanmq_core.state s
                   where s.queue_id + 0 = this_queue and s.group_hash = g.hash and s.group_hash is not null
                     and s.msg_id >= bound.from_id and s.vt <= at_
                   order by s.queue_id + 0, s.group_hash, s.msg_id limit most)
                  union all
                  (select h.msg_id from spanmq_core.later h
                   where h.queue_id + 0 = this_queue and h.group_hash = g.hash and h.group_hash is not null
                     and h.vt >= bound.due_from and h.vt <= at_ and (h.alone = 0 or waits is null)
                   order by h.queue_id + 0, h.group_hash, h.vt limit most)) f
              union all
              (select s.msg_id, s.group_hash from spanmq_core.state s
               where phase = 'new' and s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
               order by s.queue_id desc, s.msg_id desc limit 100)
              union all
              (select u.msg_id, u.group_hash
               from ((select h.msg_id, h.group_hash from spanmq_core.later h
                      where ungrouped_id is not null and h.queue_id + 0 = this_queue and h.vt >= bound.due_from
                        and h.vt <= at_ and (h.alone = 0 or waits is null)
                      order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 500)
                     union all
                     (select s.msg_id, s.group_hash from spanmq_core.state s
                      where ungrouped_id is not null and s.queue_id = this_queue and s.msg_id >= ungrouped_id
                        and s.vt <= at_
                      order by s.queue_id, s.msg_id limit 500)) u
               where u.group_hash is null limit 2 * quantity)) c;
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
    room bigint := spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group);
    at_ns bigint := spanmq_core.now_ns();
    wanted int := least(case when policy.group_shares is null then quantity else (quantity::bigint + 3) / 4 end, 100);
    hashes bigint[] := '{}';
    passed bigint[] := '{}';
    step record;
begin
    for step in
        -- The ring begins anew after the messages without a group.
        select coalesce(r.hash, -9223372036854775808) as place, coalesce(r.hash, 0) as group_hash,
               policy.rate_limit_per_group is null or spanmq_core.tokens_at(
                   policy, (select b.full_ns from spanmq_core.bucket b
                            where b.queue_id = this_queue and b.group_hash = coalesce(r.hash, 0)), at_ns, room) > 0
                   as is_open
        from spanmq_core.next_groups(this_queue, turn, 500) r (hash)
    loop
        turn := step.place;
        continue when not step.is_open or case
            when step.group_hash = 0 then spanmq_core.find_ungrouped(this_queue, bound, at_, at_, false) is null
            else not exists (select from spanmq_core.state s
                             where s.queue_id + 0 = this_queue and s.group_hash = step.group_hash
                               and s.group_hash is not null and s.msg_id >= bound.from_id and s.vt <= at_)
                 and not exists (select from spanmq_core.later h
                                 where h.queue_id + 0 = this_queue and h.group_hash = step.group_hash
                                   and h.group_hash is not null and h.vt >= bound.due_from and h.vt <= at_) end;
        -- Where each claim takes of one group, one of a low weight, compared with the greatest one, is passed at
        -- random. Those that group_shares does not name have 1. Else see open_among().
        if wanted > 1 or policy.group_shares is null or random() < (
                select coalesce(max(w.value::text::double precision)
                                filter (where hashtextextended(w.key, 0) = step.group_hash), 1)
                       / greatest(max(w.value::text::double precision), 1)
                from jsonb_each(policy.group_shares) w) then
            hashes := hashes || step.group_hash;
        else
            passed := passed || step.group_hash;
        end if;
        exit when cardinality(hashes) = wanted;
    end loop;
    perform spanmq_core.set_turn(this_queue, turn, false);
    return case when hashes = '{}' then passed[1:wanted] else hashes end;
end $$;

-- The first `quantity` of these messages, with the hashes of their groups, that the limits of the groups allow: by id;
-- with group_shares as many of each group as its weight says.
create or replace function spanmq_core.open_among(
    policy spanmq_core.policy, ids bigint[], hashes bigint[], quantity int, at_ timestamptz
) returns bigint[]
language plpgsql as $$
declare
    room bigint := spanmq_core.bucket_ns(policy.rate_limit_per_group, policy.rate_burst_per_group);
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
