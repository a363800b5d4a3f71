-- Delivering alone. A lease that ends without an outcome shows that its receiver died or was too slow, perhaps because
-- of one of the messages beside it. So such a message is a suspect, and delivered alone, when that has happened to it
-- three times, or when it has one attempt left; and it becomes a dead letter only for a lease that was lost while it
-- was alone. Only messages with a limit of attempts can be suspects: that of the policy, their own, or the default of
-- receive(). A batch of a receiver and a pop take them like others.
--
-- held.lost counts the leases that were lost beside others. A claim that meets a suspect marks it (held.alone = 1), and
-- no claim takes it beside others from then on. A worker that asks with alone => true gets it reserved, and calls
-- begin_alone() when nothing else runs in its process: only then the delivery counts. Any other caller gets it
-- (held.alone = 2) while no other one of the queue is in flight.

-- Those messages of runs that must be delivered alone.
create or replace function spanmq_core.suspects_among(this spanmq_core.queue, runs spanmq_core.run[])
returns int8multirange
language plpgsql as $$
begin
    return spanmq_core.exhausted(
               this, array(select r from unnest(runs) r where r.alone > 0 or r.lease_id > 0 and r.lost >= 2),
               this.max_attempts, 1000)
           + spanmq_core.exhausted(
               this, array(select r from unnest(runs) r where r.lease_id > 0), this.max_attempts, 1);
end $$;

-- A run whose messages are to be delivered alone.
create or replace function spanmq_core.marked(this spanmq_core.run) returns spanmq_core.run
language plpgsql immutable as $$
begin
    this.lost := spanmq_core.losses(this.lost, this.lease_id, this.alone);
    this.alone := 1;
    return this;
end $$;

-- How many leases were lost beside others, with the last one, which a visible message no longer has. One that was
-- reserved did not count.
create or replace function spanmq_core.losses(lost smallint, lease bigint, alone smallint) returns smallint
language sql immutable as $$ select least(lost + (lease > 0 and alone = 0)::int, 1000)::smallint $$;

-- Whether the lost lease of these visible messages held one alone, or may be the only one that they get: then it counts
-- as their last attempt.
create or replace function spanmq_core.was_alone(this spanmq_core.run) returns boolean
language sql immutable as $$ select this.lease_id > 0 and (this.alone = 2 or this.alone = 0 and this.attempts = 1) $$;

-- A run with the attempts that its own messages may have failed: without the leases that were lost beside others.
create or replace function spanmq_core.counted(this spanmq_core.run) returns spanmq_core.run
language plpgsql immutable as $$
begin
    this.attempts := this.attempts - this.lost;
    return this;
end $$;

-- Whether this claim may deliver a message alone: its caller waits for all else in its process, or none of the queue is
-- in flight. The lock is held to the end of the transaction: only then others see what this claim takes.
create or replace function spanmq_core.may_isolate(this_queue int, waits boolean, at_ timestamptz) returns boolean
language plpgsql as $$
begin
    return waits
        or spanmq_core.try_lock(this_queue, 'alone')
           and not exists (
               select from spanmq_core.held h
               where h.queue_id - 0 = this_queue and h.alone > 0 and h.lease_id > 0 and h.vt > at_);
end $$;

-- Takes the oldest visible message that must be delivered alone, where the order of groups allows it.
create or replace function spanmq_core.take_suspect(
    this spanmq_core.queue, waits boolean, conditional jsonb, mode text, most_in_flight int, at_ timestamptz
) returns spanmq_core.run[]
language plpgsql as $$
declare
    candidate record;
    tried bigint[] := '{}';
    took spanmq_core.run[];
    may_isolate boolean;
begin
    for candidate in
        select h.lo, coalesce(h.group_hash, 0) as place, h.group_hash from spanmq_core.held h
        where h.queue_id - 0 = this.queue_id and h.alone > 0 and h.vt <= at_ order by h.queue_id - 0, h.lo limit 1000
    loop
        may_isolate := coalesce(may_isolate, spanmq_core.may_isolate(this.queue_id, waits, at_));
        exit when not may_isolate;
        if mode is not null then
            continue when candidate.place = any (tried);
            tried := tried || candidate.place;
            took := spanmq_core.take_group(
                this.queue_id, candidate.group_hash, 1, mode, spanmq_core.bound_of(this.queue_id), at_, most_in_flight,
                true);
        else
            took := spanmq_core.keep_first(
                this.queue_id, spanmq_core.take_held(this.queue_id, array[candidate.lo], at_), 1);
        end if;
        if conditional <> '{}' and not exists (
                select from spanmq_core.fetch(this.queue_id, took, 0, null, null, true) m
                where m.message @> conditional) then
            perform spanmq_core.put_back(this.queue_id, took);
            took := '{}';
        end if;
        if took <> '{}' then
            return took;
        end if;
    end loop;
    return '{}';
end $$;

-- Begins the delivery of the message that receive() reserved under this lease: the attempt counts from now on. Returns
-- the message; no row where the lease has ended, and the message is no longer to be handled. The same message, if it
-- has begun before.
create or replace function spanmq_call.begin_alone(queue text, lease_id bigint) returns setof spanmq.leased_message
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    begun spanmq_core.held;
    run spanmq_core.run;
    n int;
begin
    perform spanmq_core.check_lease(lease_id, '{0}');
    update spanmq_core.held h set attempts = h.attempts + (h.alone = 1)::int, alone = 2, last_read_at = at_
        where h.queue_id + 0 = this.queue_id and h.lease_id = begin_alone.lease_id and h.lease_id <> 0
          and h.alone > 0 and h.vt > at_
        returning h.* into begun;
    if not found then
        return;
    end if;
    run := spanmq_core.run_of(begun);
    run.attempts := run.attempts - 1;
    return query select * from spanmq_core.fetch_leased(
        this.queue_id, array[run], at_, begun.vt, begin_alone.lease_id, 1, true);
    get diagnostics n = row_count;
    if n = 0 then
        perform spanmq_core.settle_missing(this, array[run]);
    end if;
end $$;
