-- The line: which visible messages come before one, in the order of claims, and which of these count. For explain().

-- The visible messages of a group (hash null: without one) with lower ids: the first 1,000.
create or replace function spanmq_core.first_of_group(this_queue int, hash bigint, id bigint, at_ timestamptz)
returns bigint[]
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this_queue);
begin
    return array(
        select c.msg_id from (
            (select f.msg_id from spanmq_core.state f
             where f.queue_id + 0 = this_queue and f.group_hash = hash and f.group_hash is not null
               and f.msg_id >= bound.from_id and f.msg_id < id and f.vt <= at_
             order by f.queue_id + 0, f.group_hash, f.msg_id limit 1000)
            union all
            (select f.msg_id from (
                 select * from spanmq_core.state s
                 where hash is null and s.queue_id = this_queue and s.msg_id >= bound.from_id and s.msg_id < id
                   and s.vt <= at_
                 order by s.queue_id, s.msg_id limit 5000) f
             where f.group_hash is null)
            union all
            (select h.msg_id from spanmq_core.later h
             where h.queue_id + 0 = this_queue and h.group_hash = hash and h.group_hash is not null
               and h.vt >= bound.due_from and h.vt <= at_ and h.msg_id < id
             order by h.queue_id + 0, h.group_hash, h.vt limit 1000)
            union all
            (select h.msg_id from (
                 select * from spanmq_core.later l
                 where hash is null and l.queue_id + 0 = this_queue and l.vt >= bound.due_from and l.vt <= at_
                   and l.msg_id < id
                 order by l.queue_id + 0, l.vt, l.msg_id limit 5000) h
             where h.group_hash is null)) c
        order by c.msg_id limit 1000);
end $$;

-- The visible messages before this one, in the order in which claims take them: of its group, where the policy regards
-- groups, the first 1,000; else of the queue, without those that were set aside to be delivered alone.
create or replace function spanmq_core.line_to(
    this spanmq_core.queue, run spanmq_core.unsettled, policy spanmq_core.policy, at_ timestamptz
) returns bigint[]
language plpgsql as $$
declare
    -- As many as a claim looks at that takes all which the limits allow; and enough to count some without limits.
    most int := greatest(least(policy.max_in_flight, case
                    when policy.rate_limit is not null
                    then spanmq_core.tokens(this.queue_id, policy.rate_limit, policy.rate_burst) end,
                case when policy.max_in_flight is null and policy.rate_limit is null then 200 else 1000 end), 50);
    ids bigint[];
begin
    if run.vt > at_ and not spanmq_core.regards_groups(policy) then
        return '{}';
    elsif spanmq_core.regards_groups(policy) then
        return spanmq_core.first_of_group(this.queue_id, run.group_hash, run.msg_id, at_);
    elsif not this.uses_priority then
        ids := spanmq_core.oldest_visible(this.queue_id, most, spanmq_core.bound_of(this.queue_id), at_, false, '{}',
                                          0::bigint);
        return array(select i.id from unnest(ids) i (id) where i.id < run.msg_id order by i.id);
    end if;
    ids := spanmq_core.first_by_priority(this.queue_id, most, policy.priority_aging, at_, false);
    if run.msg_id = any (ids) then
        return ids[1:array_position(ids, run.msg_id) - 1];
    end if;
    return array(select i.id from unnest(ids) with ordinality i (id, place)
                 join spanmq_core.unsettled u on u.queue_id = this.queue_id and u.msg_id = i.id
                 where coalesce(u.priority, 0) >= coalesce(run.priority, 0) order by i.place);
end $$;

-- As what a claim meets these messages, in their order: one that it ends; that must be delivered alone, set aside or
-- not yet (see sort_out()); that a transaction has locked, not set aside; else visible, as far as it is not hidden.
create or replace function spanmq_core.met_among(this spanmq_core.queue, ids bigint[], at_ timestamptz)
returns text[]
language plpgsql as $$
declare
    locked bigint[];
    met record;
    ended bigint[] := '{}';
    alone bigint[] := '{}';
begin
    -- A transaction that has locked one has locked many: each is looked for once.
    locked := array(
        with held as materialized (
            select s.msg_id, s.xmax as holder from spanmq_core.state s
            where s.queue_id = this.queue_id and s.msg_id = any (ids) and s.xmax <> '0'::xid
            union all
            select h.msg_id, h.xmax from spanmq_core.later h
            where h.queue_id = this.queue_id and h.msg_id = any (ids) and h.alone = 0
              and h.xmax <> '0'::xid)
        select l.msg_id from (select distinct h.holder from held h) o
        join held l on l.holder = o.holder
        where exists (select from spanmq_core.holder_of(o.holder)));
    if this.max_attempts is not null or this.uses_limits then
        met := spanmq_core.sort_out(this, array(
            select u.msg_id from spanmq_core.unsettled u
            where u.queue_id = this.queue_id and u.msg_id = any (ids) and u.vt <= at_), true, at_);
        ended := met.expired || met.used_up || met.lapsed;
        alone := met.suspects;
    end if;
    return array(
        select case when i.id = any (locked) then 'locked' when i.id = any (ended) then 'ends'
               when i.id = any (alone) then 'alone' else 'visible' end
        from unnest(ids) with ordinality i (id, place) order by i.place);
end $$;

-- The message that is delivered alone before all others of this kind: the one that is being so; else the first visible
-- one that was set aside and that a claim takes.
create or replace function spanmq_core.next_alone(
    this spanmq_core.queue, policy spanmq_core.policy, at_ timestamptz, but bigint, out msg_id bigint,
    out vt timestamptz, out code text, out group_hash bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    candidate spanmq_core.unsettled;
    line bigint[] := '{}';
    codes text[];
    tried bigint[] := '{}';
begin
    if this.max_attempts is null and not this.uses_limits then
        return;
    end if;
    select h.msg_id, h.vt, case h.alone when 1 then 'reserved' else 'leased' end, h.group_hash
        into msg_id, vt, code, group_hash
        from spanmq_core.later h
        where h.queue_id - 0 = this.queue_id and h.alone > 0 and h.lease_id > 0 and h.vt > at_ and h.msg_id <> but
        order by h.queue_id - 0, h.msg_id limit 1;
    if found then
        return;
    end if;
    -- See take_suspect().
    for candidate in
        select * from spanmq_core.later h
        where h.queue_id - 0 = this.queue_id and h.alone > 0 and h.vt <= at_ and h.msg_id <> but
        order by h.queue_id - 0, h.msg_id limit 100
    loop
        if spanmq_core.regards_groups(policy) then
            continue when coalesce(candidate.group_hash, 0) = any (tried);
            line := spanmq_core.line_to(this, candidate, policy, at_);
        end if;
        codes := spanmq_core.met_among(this, line || candidate.msg_id, at_);
        continue when codes[cardinality(codes)] = 'ends';
        tried := tried || coalesce(candidate.group_hash, 0);
        if not exists (select from spanmq_core.explain_lock(this, candidate, policy, at_)
                       union all
                       select from spanmq_core.explain_group(this, candidate, policy, at_, line || candidate.msg_id,
                                                             codes, '{}')) then
            msg_id := candidate.msg_id;
            vt := candidate.vt;
            code := 'visible';
            group_hash := candidate.group_hash;
            return;
        end if;
    end loop;
end $$;

-- The messages that come before this visible one and count: all but those that a claim ends, or that wait because
-- another one is delivered alone; those that are locked in groups only, whose limits a claim applies before. alone_id,
-- alone_code and alone_group: of next_alone().
create or replace function spanmq_core.ahead_of(
    run spanmq_core.unsettled, policy spanmq_core.policy, line bigint[], codes text[], alone_id bigint,
    alone_code text, alone_group bigint
) returns bigint[]
language plpgsql as $$
begin
    if run.alone > 0 then
        -- Before all.
        return '{}';
    end if;
    return array(select alone_id
                 where alone_code = 'visible' and (not spanmq_core.regards_groups(policy)
                                                   or alone_group is not distinct from run.group_hash))
           || array(select l.id from unnest(line, codes) with ordinality l (id, code, place)
                    where l.id <> run.msg_id
                      and (l.code = 'visible' or l.code = 'locked' and spanmq_core.regards_groups(policy)
                           -- The first one comes, but that of another group may come before it.
                           or l.code = 'alone' and alone_id is null and not spanmq_core.regards_groups(policy)
                              and l.place = array_position(codes, 'alone'))
                    order by l.place);
end $$;
