-- Claims: what read, receive, pop and a receiver's batch have in common.

-- Takes up to `quantity` visible messages, in the order and under the limits of the queue's policy, and leases them
-- until then (lease null: they are out of the queue). conditional: only messages that contain it. mode: null, or how
-- groups are read (take_groups). waits: whether the caller handles nothing beside a message that must be delivered
-- alone, which it gets by itself; null: it gets these like others. Returns the runs as they were, in the order of
-- delivery; with slots > 1 cut so that a slot is ceil(taken / slots) messages.
create or replace function spanmq_core.claim(
    this spanmq_core.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int,
    conditional jsonb default '{}',
    mode text default null, waits boolean default null
) returns spanmq_core.run[]
language plpgsql as $$
declare
    runs spanmq_core.run[];
    alone int := 0;
begin
    if this.max_attempts is null and not this.uses_limits then
        waits := null;
    end if;
    if quantity = 0 then
        return '{}';
    elsif this.is_plain and this.max_attempts is null and conditional = '{}' and mode is null then
        runs := spanmq_core.take_any(this.queue_id, quantity, at_, null);
    else
        runs := spanmq_core.take_governed(this, quantity, lease is not null, at_, conditional, mode, waits);
    end if;
    if slots > 1 then
        runs := spanmq_core.cut(runs, ceil(spanmq_core.count_runs(runs) / slots::numeric)::int);
    end if;
    if lease is not null and runs <> '{}' then
        if waits is not null and runs[1].alone > 0 then
            alone := case when waits then 1 else 2 end;
        end if;
        perform spanmq_core.heed_clock(this.queue_id), spanmq_core.hold(this.queue_id, runs, lease, until, at_, alone);
    end if;
    if exists (select from unnest(runs) r where (r.lo - 1) / 128 <> (r.lo + r.n - 1) / 128) then
        perform spanmq_core.move_bound(this.queue_id, this.ids);
    end if;
    return runs;
end $$;

-- waits, here and below: not null if messages that must be delivered alone are left where they are.
create or replace function spanmq_core.take_any(this_queue int, quantity int, at_ timestamptz, waits boolean)
returns spanmq_core.run[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    took spanmq_core.claimed := spanmq_core.take_fresh(this_queue, quantity, bound.fresh_from, bound.due_from, at_);
begin
    if took.lo is not null then
        return spanmq_core.blocks(took.lo, took.lo + took.n - 1);
    end if;
    return coalesce(took.runs, spanmq_core.take_visible(this_queue, quantity, bound.fresh_from, bound.due_from, at_,
                                                        waits));
end $$;

-- Takes messages of a queue whose policy orders, pauses or limits, or whose messages have priorities or limits of their
-- own.
create or replace function spanmq_core.take_governed(
    this spanmq_core.queue, quantity int, leases boolean, at_ timestamptz, conditional jsonb, mode text, waits boolean
) returns spanmq_core.run[]
language plpgsql as $$
declare
    policy spanmq_core.policy;
    asked int;
    is_alone boolean;
    runs spanmq_core.run[] := '{}';
begin
    if not this.has_plain_policy or this.uses_priority then
        policy := spanmq_core.policy_of(this.queue_id);
        if policy.paused then
            return runs;
        end if;
        mode := coalesce(mode, case when policy.ordered then case when policy.fill_groups then 'fill' else 'fair' end
                         when policy.max_in_flight_per_group is not null then 'free' end);
    end if;
    if mode is not null and conditional <> '{}' then
        raise exception 'a conditional read would take messages out of the middle of a group of queue %', this.name
            using errcode = 'MQ002',
            hint = 'Read without a condition, or without the policy''s "ordered" and "max_in_flight_per_group".';
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
           and exists (select from spanmq_core.held h where h.queue_id - 0 = this.queue_id and h.alone > 0
                       and h.vt <= at_) then
            runs := spanmq_core.take_suspect(this, waits, conditional, mode, policy.max_in_flight_per_group, at_);
        end if;
        is_alone := runs <> '{}';
        if not is_alone then
            runs := case
                when mode is not null then spanmq_core.take_groups(this.queue_id, quantity, mode,
                                                                   policy.max_in_flight_per_group, at_, waits)
                when conditional <> '{}' then spanmq_core.take_matching(this.queue_id, quantity, conditional, at_,
                                                                        waits)
                when this.uses_priority then spanmq_core.take_by_priority(this.queue_id, quantity,
                    policy.priority_aging, at_, waits)
                else spanmq_core.take_any(this.queue_id, quantity, at_, waits) end;
        end if;
        exit when runs = '{}' or this.max_attempts is null and not this.uses_limits;
        runs := spanmq_core.screen(this, runs, leases, waits is not null and not is_alone, at_, mode);
        exit when runs <> '{}';
    end loop;
    if mode <> 'free' and exists (select from unnest(runs) r where r.lease_id <> 0) then
        perform spanmq_core.disown(this.queue_id, runs, at_);
    end if;
    if policy.max_in_flight is not null and runs <> '{}' then
        -- For room_in_flight().
        perform set_config('spanmq.place_' || this.queue_id, 'used', true);
    end if;
    if policy.rate_limit is not null and spanmq_core.count_runs(runs) < asked then
        perform spanmq_core.take_tokens(this.queue_id, spanmq_core.count_runs(runs) - asked, policy.rate_limit,
                                        policy.rate_burst);
    end if;
    return runs;
end $$;

-- Takes visible messages that contain a document.
create or replace function spanmq_core.take_matching(
    this_queue int, quantity int, conditional jsonb, at_ timestamptz, waits boolean
) returns spanmq_core.run[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    candidate record;
    runs spanmq_core.run[] := '{}';
    took spanmq_core.run[];
    missing int := quantity;
    passed bigint[] := '{}';       -- runs that others have locked
    first_lo bigint := 0;          -- earlier runs do not have such a message
    n int;
begin
    -- Again where others hold some of those that were found. Each round takes messages or passes a run.
    for round in 1 .. 1000 loop
        exit when missing = 0;
        n := 0;
        for candidate in
            execute format(
                'select m.lo, m.is_fresh, range_agg(int8range(m.msg_id, m.msg_id, ''[]'')) as ids from ('
                ' select * from ('
                '  (select h.lo, h.n, h.lease_id, false as is_fresh from spanmq_core.held h where h.queue_id + 0 = $1'
                ' and h.vt >= $2 and h.vt <= $3'
                '   and (h.alone = 0 or $9 is null))'
                '  union all'
                '  (select f.lo, f.n, 0, true from spanmq_core.fresh f where f.queue_id = $1 and f.lo >= $4 order by'
                ' f.queue_id, f.lo)'
                '  order by lo) s'
                ' cross join lateral (select l.msg_id from spanmq_core.log_%s l where l.msg_id >= s.lo and l.msg_id <'
                ' s.lo + s.n and l.message @> $5'
                '  and (s.lease_id = 0 or not exists (select from spanmq_core.done d where d.queue_id = $1 and d.msg_id'
                ' = l.msg_id)) offset 0) l'
                ' where s.lo >= $8 and s.lo <> all ($7) limit $6) m group by m.lo, m.is_fresh order by m.lo',
                this_queue)
            using this_queue, bound.due_from, at_, bound.fresh_from, conditional, missing, passed, first_lo, waits
        loop
            first_lo := greatest(first_lo, case when n = 0 then candidate.lo end);
            n := n + 1;
            took := null;
            if not candidate.is_fresh then
                took := spanmq_core.take_from_held(this_queue, candidate.lo, candidate.ids, null, at_);
            elsif exists (select from spanmq_core.fresh f where f.queue_id = this_queue and f.lo = candidate.lo
                          for update skip locked) then
                took := spanmq_core.take_from_fresh(this_queue, candidate.lo, candidate.ids);
            end if;
            if took is null or took = '{}' then
                passed := passed || candidate.lo;
            else
                runs := runs || took;
                missing := missing - spanmq_core.count_runs(took);
            end if;
        end loop;
        exit when not found;
    end loop;
    return runs;
end $$;

-- Takes visible messages, the highest priority first, where every `aging` seconds that a message has been visible weigh
-- one level, so that a high one never starves the others; by id among equals. Compares the heads of all levels, so the
-- backlogs behind them cost nothing.
create or replace function spanmq_core.take_by_priority(this_queue int, quantity int, aging double precision,
                                                        at_ timestamptz, waits boolean)
returns spanmq_core.run[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
    most int := least(quantity, 1000);
    found_los bigint[];
    found_priorities int[];
    found_at timestamptz[];
    are_fresh boolean[];
    candidate record;
    took spanmq_core.run[];
    runs spanmq_core.run[] := '{}';
    missing int := quantity;
    has_passed boolean;
begin
    loop
        -- A message without priority that is not among the first fresh ones is behind enough older ones of a higher
        -- level.
        select array_agg(c.lo), array_agg(coalesce(c.priority, 0)), array_agg(c.since), array_agg(c.since is null)
            into found_los, found_priorities, found_at, are_fresh
            from ((select f.lo, f.priority, null::timestamptz as since from spanmq_core.fresh f
                   where f.queue_id = this_queue and f.lo >= bound.fresh_from order by f.queue_id, f.lo limit most)
                  union
                  (select f.lo, f.priority, null from generate_series(1, 9) level cross join lateral (
                      select * from spanmq_core.fresh f
                      where f.queue_id + 0 = this_queue and f.priority = level and f.priority > 0
                      and f.lo >= bound.fresh_from
                      order by f.queue_id + 0, f.priority, f.lo limit most) f)
                  union
                  (select h.lo, h.priority, h.vt from spanmq_core.held h
                   where h.queue_id + 0 = this_queue and h.vt >= bound.due_from and h.vt <= at_
                   and (h.alone = 0 or waits is null)
                   order by h.queue_id + 0, h.vt limit 1000)) c;
        exit when found_los is null;
        found_at := spanmq_core.visible_since(this_queue, found_los, found_at);
        has_passed := false;
        for candidate in
            select c.lo, c.is_fresh
            from (select u.*,
                         -- By id within a level: one that came back is as old as the oldest behind it.
                         min(u.since) over (partition by u.priority order by u.lo desc) as waits_since
                  from unnest(found_los, found_priorities, found_at, are_fresh) u (lo, priority, since, is_fresh)) c
            order by c.priority + coalesce(extract(epoch from at_ - c.waits_since), 0) / aging desc, c.lo
        loop
            took := case when candidate.is_fresh then spanmq_core.take_fresh_at(this_queue, array[candidate.lo])
                         else spanmq_core.take_held(this_queue, array[candidate.lo], at_) end;
            has_passed := has_passed or took = '{}';
            -- One of the same rank may follow, which was not among the first `most`.
            exit when took = '{}' and most < 1000;
            runs := runs || spanmq_core.keep_first(this_queue, took, missing);
            missing := missing - least(spanmq_core.count_runs(took), missing);
            exit when missing = 0;
        end loop;
        -- Again, and further on, where others hold some of those that were found.
        exit when missing = 0 or not has_passed or most = 1000;
        most := least(10 * most, 1000);
    end loop;
    return array(select r from unnest(runs) r order by coalesce(r.priority, 0) desc, r.lo);
end $$;

-- Whether claims of a queue regard priorities: not where groups have an order.
create or replace function spanmq_core.goes_by_priority(this spanmq_core.queue) returns boolean
language plpgsql stable as $$
declare
    policy spanmq_core.policy;
begin
    if this.uses_priority and not this.has_plain_policy then
        policy := spanmq_core.policy_of(this.queue_id);
        return not policy.ordered and policy.max_in_flight_per_group is null;
    end if;
    return this.uses_priority;
end $$;
