-- Claims: what read, receive, pop and a receiver's batch have in common.

-- Takes up to `quantity` visible messages, in the order and under the limits of the queue's policy, and leases them
-- until then (lease null: they are locked, and the caller deletes them). conditional: only messages that contain it.
-- mode: null, or how groups are read (take_groups). waits: whether the caller handles nothing beside a message that
-- must be delivered alone, which it gets by itself; null: it gets these like others. retries, newest: see receive().
-- Returns their ids, in the order of delivery.
create or replace function spanmq_core.claim(
    this spanmq_core.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, conditional jsonb,
    mode text, waits boolean, retries int, newest boolean
) returns bigint[]
language plpgsql as $$
declare
    ids bigint[];
    alone int := 0;
begin
    if this.max_attempts is null and not this.uses_limits then
        waits := null;
    end if;
    if quantity = 0 then
        return '{}';
    elsif this.is_plain and this.max_attempts is null and conditional = '{}' and mode is null and not newest then
        ids := spanmq_core.take_any(this.queue_id, quantity, at_, null::boolean, retries);
    else
        ids := spanmq_core.take_governed(this, quantity, lease is not null, at_, conditional, mode, waits, retries,
                                         newest);
    end if;
    if ids = '{}' then
        return ids;
    end if;
    if lease is not null then
        if waits is not null and exists (select from spanmq_core.later l where l.queue_id = this.queue_id
                                         and l.msg_id = ids[1] and l.alone + 0 > 0) then
            alone := case when waits then 1 else 2 end;
        end if;
        perform spanmq_core.lease_ids(this.queue_id, ids, lease, until, at_, alone);
    end if;
    if exists (select from unnest(ids) id where id & 127 = 0) then
        perform spanmq_core.move_bound(this.queue_id, this.ids);
    end if;
    return ids;
end $$;

-- Takes up to `quantity` visible messages, the oldest first. waits, here and below: not null if messages that must be
-- delivered alone are left where they are. retries: see receive().
create or replace function spanmq_core.take_any(this_queue int, quantity int, at_ timestamptz, waits boolean,
                                                retries int)
returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    n_untried int;
    untried bigint[] := '{}';
    tried_to bigint := 0;
    ids bigint[];
    n int;
    locked bigint[];
    took bigint[] := '{}';
begin
    if retries is not null then
        -- Half of a single message is one in every other claim.
        n_untried := quantity - least(retries, floor(quantity / 2.0 + random()));
        if n_untried > 0 then
            untried := spanmq_core.take_untried(this_queue, n_untried, at_, false);
            quantity := quantity - cardinality(untried);
            if cardinality(untried) < n_untried then
                -- All that are left were received before.
                quantity := least(quantity, retries::bigint + 1);
            end if;
        end if;
    end if;
    -- Again, further on, where others hold all that was found, or rows have changed since.
    for round in 1 .. 100 loop
        exit when quantity = 0;
        ids := spanmq_core.oldest_visible(this_queue, quantity, bound, at_, waits, untried, tried_to);
        exit when ids = '{}';
        n := 0;
        while quantity > 0 and n < cardinality(ids) loop
            locked := spanmq_core.lock_visible(this_queue, ids[n + 1:n + quantity], at_);
            n := n + quantity;
            took := took || locked;
            quantity := quantity - cardinality(locked);
        end loop;
        tried_to := ids[cardinality(ids)];
    end loop;
    return case when untried = '{}' then took else array(select id from unnest(untried || took) id order by id) end;
end $$;

-- Takes messages of a queue whose policy orders, pauses or limits, or whose messages have priorities or limits of their
-- own.
create or replace function spanmq_core.take_governed(
    this spanmq_core.queue, quantity int, leases boolean, at_ timestamptz, conditional jsonb, mode text, waits boolean,
    retries int, newest boolean
) returns bigint[]
language plpgsql as $$
declare
    policy spanmq_core.policy;
    asked int;
    is_alone boolean;
    ids bigint[] := '{}';
    took record;
    late bigint[] := '{}';         -- see disown()
begin
    if not this.has_plain_policy or this.uses_priority then
        policy := spanmq_core.policy_of(this.queue_id);
        if policy.paused then
            return ids;
        end if;
        mode := coalesce(mode, case when policy.ordered then case when policy.fill_groups then 'fill' else 'fair' end
                         when spanmq_core.regards_groups(policy) then 'free' end);
    end if;
    if mode is not null and conditional <> '{}' then
        raise exception 'a conditional read would take messages out of the middle of a group of queue %', this.name
            using errcode = 'MQ002',
            hint = 'Read without a condition, or without the policy''s "ordered" and limits for each group.';
    end if;
    if policy.max_in_flight is not null and leases then
        quantity := greatest(spanmq_core.room_in_flight(this, quantity, policy.max_in_flight, at_), 0);
    end if;
    if policy.rate_limit is not null and quantity > 0 then
        quantity := spanmq_core.take_tokens(this.queue_id, quantity, policy.rate_limit, policy.rate_burst);
    end if;
    asked := quantity;
    -- Bounded, because a backlog may have expired: the next call continues, and maintain() takes thousands at a time.
    for round in 1 .. 50 loop
        exit when quantity = 0;
        if waits is not null
           and exists (select from spanmq_core.later h where h.queue_id - 0 = this.queue_id and h.alone > 0
                       and h.vt <= at_) then
            took := spanmq_core.take_suspect(this, waits, conditional, mode, policy, at_);
            ids := took.ids;
            late := late || took.late;
        end if;
        is_alone := ids <> '{}';
        if is_alone then
            null;
        elsif mode = 'free' and (policy.rate_limit_per_group is not null or policy.group_shares is not null) then
            ids := spanmq_core.take_open(policy, quantity, at_, waits);
        elsif mode is not null then
            took := spanmq_core.take_groups(this.queue_id, quantity, mode, policy, at_, waits);
            ids := took.ids;
            late := late || took.late;
        else
            ids := case
                when conditional <> '{}' then spanmq_core.take_matching(this.queue_id, quantity, conditional, at_,
                                                                        waits)
                when newest then coalesce(nullif(spanmq_core.take_untried(this.queue_id, quantity, at_, true), '{}'),
                                          spanmq_core.take_any(this.queue_id, 1, at_, waits, null::int))
                when this.uses_priority then spanmq_core.take_by_priority(this.queue_id, quantity,
                    policy.priority_aging, at_, waits)
                else spanmq_core.take_any(this.queue_id, quantity, at_, waits, retries) end;
        end if;
        if policy.rate_cost is not null and policy.rate_limit_per_group is not null then
            ids := spanmq_core.within_tokens(policy, ids);
        end if;
        exit when ids = '{}' or this.max_attempts is null and not this.uses_limits;
        ids := spanmq_core.screen(this, ids, leases, waits is not null and not is_alone, at_, mode);
        exit when ids <> '{}';
        -- What was set aside is visible as from now on.
        at_ := greatest(at_, clock_timestamp());
    end loop;
    if late <> '{}' and ids <> '{}' then
        perform spanmq_core.disown(this.queue_id, late, ids, at_);
    end if;
    if policy.max_in_flight is not null and ids <> '{}' then
        -- For room_in_flight().
        perform set_config('spanmq.place_' || this.queue_id, 'used', true);
    end if;
    if policy.rate_limit_per_group is not null and ids <> '{}' then
        perform spanmq_core.draw_tokens(policy, ids);
    end if;
    if policy.rate_limit is not null and cardinality(ids) < asked then
        perform spanmq_core.take_tokens(this.queue_id, cardinality(ids) - asked, policy.rate_limit,
                                        policy.rate_burst);
    end if;
    return ids;
end $$;

-- Takes visible messages that contain a document.
create or replace function spanmq_core.take_matching(
    this_queue int, quantity int, conditional jsonb, at_ timestamptz, waits boolean
) returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    ids bigint[];
    locked bigint[];
    took bigint[] := '{}';
    tried_to bigint := 0;
begin
    -- Again, behind these, where others hold some of those that were found.
    for round in 1 .. 1000 loop
        execute format(
            'select array_agg(m.msg_id) from (select s.msg_id from ('
            ' select h.msg_id from spanmq_core.later h where h.queue_id + 0 = $1 and h.vt >= $2 and h.vt <= $3'
            '  and h.msg_id > $7 and (h.alone = 0 or $8 is null)'
            ' union all'
            ' (select f.msg_id from spanmq_core.state f where f.queue_id = $1 and f.msg_id >= greatest($4, $7 + 1)'
            '  and f.vt <= $3 order by f.queue_id, f.msg_id)'
            ' order by msg_id) s'
            ' cross join lateral (select from spanmq_core.log_%s l where l.msg_id = s.msg_id and l.message @> $5'
            '  offset 0) l limit $6) m', this_queue)
            into ids
            using this_queue, bound.due_from, at_, bound.from_id, conditional, quantity, tried_to, waits;
        exit when ids is null;
        tried_to := ids[cardinality(ids)];
        locked := spanmq_core.lock_visible(this_queue, ids, at_);
        took := took || locked;
        quantity := quantity - cardinality(locked);
        exit when quantity = 0;
    end loop;
    return took;
end $$;

-- The visible messages at the head of each level, up to `most` of each, the highest priority first, where every `aging`
-- seconds that a message has been visible weigh one level, so that a high one never starves the others; by id among
-- equals. The backlogs behind them cost nothing.
create or replace function spanmq_core.first_by_priority(
    this_queue int, most int, aging double precision, at_ timestamptz, waits boolean
) returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
begin
    -- A message without priority that is not among the first ones is behind enough older ones of a higher level.
    return array(
        select c.msg_id
        from (select u.*,
                     -- By id within a level: one that came back is as old as the oldest behind it.
                     min(u.vt) over (partition by coalesce(u.priority, 0) order by u.msg_id desc) as since
              from ((select s.msg_id, s.priority, s.vt from spanmq_core.state s
                     where s.queue_id = this_queue and s.msg_id >= bound.from_id and s.vt <= at_
                     order by s.queue_id, s.msg_id limit most)
                    union
                    (select s.msg_id, s.priority, s.vt from generate_series(1, 9) level cross join lateral (
                        select * from spanmq_core.state s
                        where s.queue_id + 0 = this_queue and s.priority = level and s.priority > 0
                          and s.msg_id >= bound.from_id and s.vt <= at_
                        order by s.queue_id + 0, s.priority, s.msg_id limit most) s)
                    union
                    (select h.msg_id, h.priority, h.vt from spanmq_core.later h
                     where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                       and (h.alone = 0 or waits is null)
                     order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 1000)) u) c
        order by coalesce(c.priority, 0) + extract(epoch from at_ - c.since) / greatest(aging, 1e-9) desc, c.msg_id);
end $$;

-- Takes the first of them.
create or replace function spanmq_core.take_by_priority(this_queue int, quantity int, aging double precision,
                                                        at_ timestamptz, waits boolean)
returns bigint[]
language plpgsql as $$
declare
    most int := least(quantity, 1000);
    ids bigint[];
    id bigint;
    took bigint[] := '{}';
    missing int := quantity;
    has_passed boolean;
begin
    loop
        ids := spanmq_core.first_by_priority(this_queue, most, aging, at_, waits);
        exit when ids = '{}';
        has_passed := false;
        foreach id in array ids loop
            continue when id = any (took);
            if spanmq_core.lock_visible(this_queue, array[id], at_) <> '{}' then
                took := took || id;
                missing := missing - 1;
                exit when missing = 0;
            else
                has_passed := true;
                -- One of the same rank may follow, which was not among the first `most`.
                exit when most < 1000;
            end if;
        end loop;
        -- Again, and further on, where others hold some of those that were found.
        exit when missing = 0 or not has_passed or most = 1000;
        most := least(10 * most, 1000);
    end loop;
    return array(select u.msg_id from spanmq_core.unsettled u
                 where u.queue_id = this_queue and u.msg_id = any (took)
                 order by coalesce(u.priority, 0) desc, u.msg_id);
end $$;
