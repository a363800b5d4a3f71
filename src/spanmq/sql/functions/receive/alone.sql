-- Delivering alone. A lease that ends without an outcome shows that its receiver died or was too slow, perhaps because
-- of one of the messages beside it. So such a message is a suspect, and delivered alone, when that has happened to it
-- three times, or when it has one attempt left; and it becomes a dead letter only for a lease that was lost while it
-- was alone. Only messages with a limit of attempts can be suspects: that of the policy, their own, or the default of
-- receive(). A batch of a receiver and a pop take them like others.
--
-- later.lost counts the leases that were lost beside others. A claim that meets a suspect marks it (later.alone = 1),
-- and no claim takes it beside others from then on. A worker that asks with alone => true gets it reserved, and calls
-- begin_alone() when nothing else runs in its process: only then the delivery counts. Any other caller gets it
-- (later.alone = 2) while no other one of the queue is in flight.

-- How many leases were lost beside others, with the last one, which a visible message no longer has. One that was
-- reserved did not count.
create or replace function spanmq_core.losses(lost smallint, lease bigint, alone smallint) returns smallint
language sql immutable as $$ select least(lost + (lease > 0 and alone = 0)::int, 1000)::smallint $$;

-- Whether the lost lease of a visible message held it alone, or may be the only one that it gets: then it counts as its
-- last attempt.
create or replace function spanmq_core.was_alone(lease bigint, alone smallint, attempts int) returns boolean
language sql immutable as $$ select lease > 0 and (alone = 2 or alone = 0 and attempts = 1) $$;

-- Takes the oldest visible message that must be delivered alone, where the order of groups allows it. late: see
-- take_first().
create or replace function spanmq_core.take_suspect(
    this spanmq_core.queue, waits boolean, conditional jsonb, mode text, policy spanmq_core.policy, at_ timestamptz,
    out ids bigint[], out late bigint[]
)
language plpgsql as $$
declare
    bound spanmq_core.bound := spanmq_core.bound_of(this.queue_id);
    candidate record;
    tried bigint[] := '{}';
    took record;
begin
    ids := '{}';
    late := '{}';
    -- Only if the caller waits for all else in its process, or none of the queue is in flight. The lock is held to the
    -- end of the transaction: only then others see what this claim takes.
    if not waits and (not spanmq_core.try_lock(this.queue_id, 'alone') or exists (
            select from spanmq_core.later h
            where h.queue_id - 0 = this.queue_id and h.alone > 0 and h.lease_id > 0 and h.vt > at_)) then
        return;
    end if;
    for candidate in
        select h.msg_id, coalesce(h.group_hash, 0) as place, h.group_hash from spanmq_core.later h
        where h.queue_id - 0 = this.queue_id and h.alone > 0 and h.vt <= at_
        order by h.queue_id - 0, h.msg_id limit 1000
    loop
        if mode is not null then
            continue when candidate.place = any (tried);
            tried := tried || candidate.place;
            took := spanmq_core.take_first(
                this.queue_id, array[candidate.group_hash], 1, 1, '{}'::bigint[], mode, bound, bound.from_id, at_,
                policy, true);
            ids := took.ids;
            late := took.late;
        else
            ids := spanmq_core.lock_visible(this.queue_id, array[candidate.msg_id], at_);
        end if;
        exit when ids <> '{}' and (conditional = '{}' or exists (
            select from spanmq_core.fetch(this, ids, null::timestamptz, true) m
            where m.message @> conditional));
        ids := '{}';
    end loop;
end $$;

-- Begins the delivery of the message that receive() reserved under this lease: the attempt counts from now on. Returns
-- the message, also if the delivery has begun before. No row: the lease has ended, and the caller must not handle the
-- message.
create or replace function spanmq_call.begin_alone(queue text, lease_id bigint) returns setof spanmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    begun spanmq_core.later;
    n int;
begin
    perform spanmq_core.check_lease(lease_id, '{0}');
    update spanmq_core.later h set attempts = h.attempts + (h.alone = 1)::int, alone = 2, last_read_at = at_
        where h.queue_id is not distinct from this.queue_id and h.lease_id = begin_alone.lease_id and h.lease_id <> 0
          and h.alone > 0 and h.vt > at_
        returning h.* into begun;
    if not found then
        return;
    end if;
    return query select * from spanmq_core.fetch_leased(
        this, array[begun.msg_id], begun.vt, begin_alone.lease_id, 1, true);
    get diagnostics n = row_count;
    if n = 0 then
        perform spanmq_core.settle_missing(this, array[begun.msg_id]);
    end if;
end $$;
