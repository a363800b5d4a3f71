-- The claims that need more than visible spans: of queues whose policy orders, pauses or limits, or whose messages have a
-- priority or limits of their own (queue.is_plain is false), and grouped reads of any queue. All of them come through here.

-- As claim_of(). mode: null (as the policy says), or fair, fill, rr or head (claim_groups). Returns runs in the order of delivery.
create or replace function spanmq.claim_special(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, conditional jsonb, mode text
) returns spanmq.run[]
language plpgsql as $$
declare
    policy spanmq.policy;
begin
    if not this.has_plain_policy then
        policy := spanmq.policy_of(this.queue_id);
        if policy.paused then
            return '{}';
        end if;
        if policy.ordered and mode is null then
            mode := 'fair';
        end if;
    end if;
    if mode is not null then
        if conditional <> '{}' then
            raise exception 'queue % is ordered: a conditional read would take messages out of the middle of a group', this.name
                using errcode = 'MQ002', hint = 'Read without a condition, or set the policy "ordered" to false.';
        end if;
        return spanmq.claim_groups_of(this, quantity, lease, until, at_, slots, mode);
    elsif conditional <> '{}' and this.is_unlogged then
        return spanmq.claim_matching_unlogged(this.queue_id, quantity, lease, until, at_, conditional);
    elsif conditional <> '{}' then
        return spanmq.claim_matching(this.queue_id, quantity, lease, until, at_, conditional);
    elsif this.is_unlogged then
        return spanmq.claim_unlogged(this.queue_id, quantity, lease, until, at_, slots);
    end if;
    return spanmq.claim(this.queue_id, quantity, lease, until, at_, slots);
end $$;

create or replace function spanmq.claim_groups_of(
    this spanmq.queue, quantity int, lease bigint, until timestamptz, at_ timestamptz, slots int, mode text
) returns spanmq.run[]
language plpgsql as $$
begin
    if this.is_unlogged then
        return spanmq.claim_groups_unlogged(this.queue_id, quantity, lease, until, at_, slots, mode);
    end if;
    return spanmq.claim_groups(this.queue_id, quantity, lease, until, at_, slots, mode);
end $$;
