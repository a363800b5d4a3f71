-- The claims that need more than visible spans: of queues whose policy orders, pauses or limits, or whose messages have a
-- priority or limits of their own (queue.is_plain is false), and grouped reads of any queue. All of them come through here.

-- As claim_of(). mode: null (as the policy says), or how groups are claimed (claim_groups). Returns runs in the order of delivery.
create or replace function spanmq.claim_special(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, conditional jsonb, mode text
) returns spanmq.run[]
language plpgsql as $$
declare
    policy spanmq.policy;
    runs spanmq.run[];
begin
    if not this.has_plain_policy or this.uses_priority then
        policy := spanmq.policy_of(this.queue_id);
        if policy.paused then
            return '{}';
        end if;
        mode := coalesce(mode, case when policy.ordered then 'fair' when policy.max_in_flight_per_group is not null then 'free' end);
    end if;
    if mode is not null and conditional <> '{}' then
        raise exception 'a conditional read would take messages out of the middle of a group of queue %', this.name
            using errcode = 'MQ002', hint = 'Read without a condition, or without the policy''s "ordered" and "max_in_flight_per_group".';
    end if;
    if policy.max_in_flight is not null and lease is not null and quantity > 0 then
        quantity := greatest(spanmq.room_in_flight(this, quantity, policy.max_in_flight, at_), 0);
    end if;
    if policy.rate_limit is not null and quantity > 0 then
        quantity := spanmq.take_tokens(this.queue_id, quantity, policy.rate_limit, policy.rate_burst);
    end if;
    if quantity = 0 then
        return '{}';
    end if;
    runs := spanmq.claim_as(this, quantity, lease, until, at_, slots, conditional, mode, policy);
    if policy.max_in_flight is not null and runs <> '{}' then
        -- For room_in_flight().
        perform set_config('spanmq.place_' || this.queue_id, 'used', true);
    end if;
    if policy.rate_limit is not null and spanmq.count_runs(runs) < quantity then
        perform spanmq.take_tokens(this.queue_id, spanmq.count_runs(runs) - quantity, policy.rate_limit, policy.rate_burst);
    end if;
    if this.max_attempts is null and not this.uses_limits then
        -- Else claim_screened() does, when it has given back what it does not deliver.
        perform spanmq.disown(this, runs, at_, nullif(mode, 'free'));
    end if;
    return runs;
end $$;

-- Where there is order (the policy's, or a grouped read's), takes from whoever overslept what stands behind the messages of such a claim.
create or replace function spanmq.disown(this spanmq.queue, runs spanmq.run[], at_ timestamptz, mode text) returns void
language plpgsql as $$
begin
    if exists (select from unnest(runs) r where r.lease_id <> 0) and (mode is not null or (spanmq.policy_of(this.queue_id)).ordered) then
        if this.is_unlogged then
            perform spanmq.disown_rest_unlogged(this.queue_id, runs, at_);
        else
            perform spanmq.disown_rest(this.queue_id, runs, at_);
        end if;
    end if;
end $$;

-- Whether claims of a queue regard priorities: not where groups have an order.
create or replace function spanmq.goes_by_priority(this spanmq.queue) returns boolean
language plpgsql stable as $$
declare
    policy spanmq.policy;
begin
    if this.uses_priority and not this.has_plain_policy then
        policy := spanmq.policy_of(this.queue_id);
        return not policy.ordered and policy.max_in_flight_per_group is null;
    end if;
    return this.uses_priority;
end $$;

create or replace function spanmq.by_priority(runs spanmq.run[]) returns spanmq.run[]
language sql immutable as $$ select array_agg(r order by coalesce(r.priority, 0) desc, r.lo) from unnest(runs) r $$;

-- Dispatches such a claim: of groups, of those that match, by priority, or of any.
create or replace function spanmq.claim_as(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, conditional jsonb, mode text,
    policy spanmq.policy
) returns spanmq.run[]
language plpgsql as $$
begin
    if mode is not null and this.is_unlogged then
        return spanmq.claim_groups_unlogged(this.queue_id, quantity, lease, until, at_, slots, mode, policy.max_in_flight_per_group);
    elsif mode is not null then
        return spanmq.claim_groups(this.queue_id, quantity, lease, until, at_, slots, mode, policy.max_in_flight_per_group);
    elsif conditional <> '{}' and this.is_unlogged then
        return spanmq.claim_matching_unlogged(this.queue_id, quantity, lease, until, at_, conditional);
    elsif conditional <> '{}' then
        return spanmq.claim_matching(this.queue_id, quantity, lease, until, at_, conditional);
    elsif this.uses_priority and this.is_unlogged then
        return spanmq.claim_by_priority_unlogged(this.queue_id, quantity, lease, until, at_, slots, policy.priority_aging);
    elsif this.uses_priority then
        return spanmq.claim_by_priority(this.queue_id, quantity, lease, until, at_, slots, policy.priority_aging);
    elsif this.is_unlogged then
        return spanmq.claim_unlogged(this.queue_id, quantity, lease, until, at_, slots);
    end if;
    return spanmq.claim(this.queue_id, quantity, lease, until, at_, slots);
end $$;
