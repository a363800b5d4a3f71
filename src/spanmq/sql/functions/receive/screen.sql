-- Looking through what a claim took, in queues whose messages have a limit (queue.max_attempts, or queue.uses_limits:
-- numbers of attempts and expiries of their own). Nothing else comes here. Which messages must be delivered alone:
-- alone.sql.

-- Returns the runs of a claim that may be leased or (`leases` false) removed; the others become dead letters or return
-- to the queue. isolates: if there are messages that must be delivered alone, these are marked, and all return. In
-- order (the policy's, or a grouped read's): no message of a group is delivered behind one that becomes a dead letter,
-- if the policy makes groups wait for those.
create or replace function spanmq_core.screen(
    this spanmq_core.queue, runs spanmq_core.run[], leases boolean, isolates boolean, at_ timestamptz, mode text
) returns spanmq_core.run[]
language plpgsql as $$
declare
    expired int8multirange := '{}';
    policy spanmq_core.policy;
    least_attempts int := case when this.uses_limits then 1 else this.max_attempts end;
    run spanmq_core.run;
    has_late boolean := false;     -- messages of an expired lease, or possibly without attempts left
    late spanmq_core.run[];        -- messages of an expired lease, or to be delivered alone
    dead int8multirange;
    buried spanmq_core.run[] := '{}';
    suspects spanmq_core.run[] := '{}';
    waiting int8multirange := '{}';        -- messages behind one for which their group waits
begin
    if this.uses_limits then
        select coalesce(range_agg(int8range(e.msg_id, e.msg_id, '[]')), '{}') into expired
            from unnest(runs) r
            join spanmq_core.expiry e on e.queue_id = this.queue_id and e.msg_id >= r.lo and e.msg_id < r.lo + r.n
            where e.expires_at <= at_;
    end if;
    foreach run in array runs loop
        has_late := has_late or run.lease_id <> 0 or run.alone > 0 or run.attempts >= least_attempts;
    end loop;
    if isempty(expired) and not has_late then
        return runs;
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    if not isempty(expired) then
        late := spanmq_core.runs_among(runs, expired);
        buried := spanmq_core.drop_or_bury(this, late, at_);
        runs := spanmq_core.runs_not_among(runs, expired);
    end if;
    if has_late then
        dead := spanmq_core.spent(this, runs, least_attempts);
        late := spanmq_core.runs_among(runs, dead);
        perform spanmq_core.bury(this, late, at_, spanmq_core.no_attempt_left());
        buried := buried || late;
        runs := spanmq_core.runs_not_among(runs, dead);
        dead := spanmq_core.exhausted(
            this, array(select r from unnest(runs) r where spanmq_core.was_alone(r)), this.max_attempts, 0);
        late := spanmq_core.runs_among(runs, dead);
        perform spanmq_core.bury(this, late, at_, spanmq_core.lease_ran_out('the lease of the last attempt ran out'));
        buried := buried || late;
        runs := spanmq_core.runs_not_among(runs, dead);
        late := array(select r from unnest(runs) r where r.lease_id <> 0 or r.alone > 0);
        if isolates then
            suspects := spanmq_core.runs_among(late, spanmq_core.suspects_among(this, late));
        end if;
        if leases then
            -- Not of messages without a limit, and once: what goes back beside suspects is looked through again.
            late := array(
                select r from unnest(case when suspects = '{}' then late else suspects end) r
                where r.lease_id <> 0 and r.alone <> 1);
            late := spanmq_core.runs_among(late, spanmq_core.exhausted(this, late, this.max_attempts, 1000));
            perform spanmq_core.note_failure(
                this.queue_id, late, at_, 'expired', spanmq_core.lease_ran_out('the lease ran out'));
        end if;
        if suspects <> '{}' then
            perform spanmq_core.put_back(
                this.queue_id, spanmq_core.runs_not_among(runs, spanmq_core.ids_of_runs(suspects))
                               || array(select spanmq_core.marked(s) from unnest(suspects) s));
            return '{}';
        end if;
    end if;
    if policy.dead_letter_blocks_group
        and (mode is not null or policy.ordered or policy.max_in_flight_per_group is not null) then
        waiting := spanmq_core.behind(runs, buried);
        perform spanmq_core.put_back(this.queue_id, spanmq_core.runs_among(runs, waiting));
        runs := spanmq_core.runs_not_among(runs, waiting);
    end if;
    return runs;
end $$;

create or replace function spanmq_core.no_attempt_left() returns spanmq_core.reason
language sql immutable as $$
    select ('UNKNOWN', 'the last attempt ended without an outcome', 'NoAttemptLeft', null, null)::spanmq_core.reason
$$;

create or replace function spanmq_core.lease_ran_out(error text) returns spanmq_core.reason
language sql immutable as $$ select ('UNKNOWN', error, 'LeaseExpired', null, null)::spanmq_core.reason $$;

-- Those messages of runs that come from no lease and yet have no attempt left: set_vt() showed them again after their
-- last. Not those that failed and may be tried again: their category may have more attempts than the queue.
create or replace function spanmq_core.spent(
    this spanmq_core.queue, runs spanmq_core.run[], least_attempts int
) returns int8multirange
language plpgsql as $$
declare
    dead int8multirange;
begin
    runs := array(select r from unnest(runs) r where r.lease_id = 0 and r.alone = 0
                  and r.attempts - r.lost >= least_attempts);
    if runs = '{}' then
        return '{}';
    end if;
    dead := spanmq_core.exhausted(this, array(select spanmq_core.counted(r) from unnest(runs) r), this.max_attempts, 0);
    if isempty(dead) then
        return dead;
    end if;
    return dead - (
        select coalesce(range_agg(piece), '{}')
        from unnest(runs) r
        join spanmq_core.failure f on f.queue_id = this.queue_id and f.lo >= r.lo - r.lo % 256
        and f.lo < r.lo - r.lo % 256 + 256
                                 and f.outcome = 'retrying' and f.attempt >= r.attempts
        cross join unnest(spanmq_core.ids_of(f) * spanmq_core.ids_of(r.lo, r.n)) piece);
end $$;

-- The messages of runs that are behind one of these dead letters in their group. Those without a group wait for
-- nothing.
create or replace function spanmq_core.behind(runs spanmq_core.run[], buried spanmq_core.run[]) returns int8multirange
language plpgsql immutable as $$
begin
    return (
        select coalesce(range_agg(int8range(greatest(r.lo, first.lo + 1), r.lo + r.n)), '{}')
        from unnest(runs) r
        join (select b.group_key, min(b.lo) as lo from unnest(buried) b group by b.group_key) first
        on first.group_key = r.group_key
        where r.lo + r.n > first.lo + 1);
end $$;

-- Messages that expired, taken out of the queue: dead letters, which are returned, unless the policy drops them. Those
-- that were cancelled just end.
create or replace function spanmq_core.drop_or_bury(
    this spanmq_core.queue, runs spanmq_core.run[], at_ timestamptz
) returns spanmq_core.run[]
language plpgsql as $$
declare
    reason spanmq_core.reason := ('EXPIRED', 'the message expired before it was handled', null, null,
                                  null)::spanmq_core.reason;
    expired spanmq_core.run[] := spanmq_core.end_cancelled(this, runs);
begin
    if expired = '{}' then
        return expired;
    end if;
    if (spanmq_core.policy_of(this.queue_id)).drop_expired then
        -- For state(): these are not completed.
        perform spanmq_core.note_failure(this.queue_id, expired, at_, 'cancelled', reason);
    else
        perform spanmq_core.bury(this, expired, at_, reason);
    end if;
    delete from spanmq_core.expiry e where e.queue_id = this.queue_id
        and e.msg_id = any (array(select spanmq_core.expand_runs(expired)));
    return case when (spanmq_core.policy_of(this.queue_id)).drop_expired then '{}' else expired end;
end $$;

-- Ends those of these messages, taken out of the queue, that were cancelled while a receiver held them. Returns the
-- others.
create or replace function spanmq_core.end_cancelled(
    this spanmq_core.queue, runs spanmq_core.run[]
) returns spanmq_core.run[]
language plpgsql as $$
declare
    cancelled int8multirange;
    ended spanmq_core.run[];
begin
    if not this.uses_limits or runs = '{}' then
        return runs;
    end if;
    with gone as (
        delete from spanmq_core.expiry e using unnest(runs) r
            where e.queue_id = this.queue_id and e.msg_id >= r.lo and e.msg_id < r.lo + r.n and e.is_cancelled
            returning e.msg_id)
    select range_agg(int8range(g.msg_id, g.msg_id, '[]')) into cancelled from gone g;
    if cancelled is null then
        return runs;
    end if;
    ended := spanmq_core.runs_among(runs, cancelled);
    -- For state(): these are not completed.
    perform spanmq_core.note_failure(this.queue_id, ended, clock_timestamp(), 'cancelled',
                                     ('UNKNOWN', null, null, null, null)::spanmq_core.reason);
    perform spanmq_core.tell_settled(this, ended);
    return spanmq_core.runs_not_among(runs, cancelled);
end $$;

-- Dead-letters (or drops) up to at_most messages that have expired and that no live lease holds, also without
-- receivers. Returns their number. A message in flight keeps its row: if it returns, it has expired. Passes over those,
-- for a second, and the next call continues there: however many are in flight, the ones behind them get their turn.
-- Skips rows that other transactions have locked.
create or replace function spanmq_core.expire(this spanmq_core.queue, at_ timestamptz, at_most int) returns bigint
language plpgsql as $$
declare
    ids bigint[];
    free bigint[];
    from_at timestamptz;
    from_id bigint;
    first_at timestamptz;
    first_id bigint;
    is_second_round boolean := false;
    runs spanmq_core.run[];
begin
    if not this.uses_limits then
        return 0;
    end if;
    select coalesce(max(u.expired_at), '-infinity'), coalesce(max(u.expired_to), 0) into first_at, first_id
        from spanmq_core.upkeep u where u.queue_id = this.queue_id;
    from_at := first_at;
    from_id := first_id;
    loop
        select coalesce(array_agg(n.msg_id order by n.expires_at, n.msg_id), '{}'), max(n.expires_at) into ids, from_at
            from (select * from spanmq_core.expiry e
                  where e.queue_id = this.queue_id and e.expires_at <= at_
                  and (e.expires_at, e.msg_id) > (from_at, from_id)
                  order by e.queue_id, e.expires_at, e.msg_id limit at_most) n;
        from_id := ids[cardinality(ids)];
        free := spanmq_core.lock_free(this.queue_id, ids);
        runs := spanmq_core.take_out(this.queue_id, free, 0, true);
        if spanmq_core.count_runs(runs) < cardinality(ids) then
            runs := runs || spanmq_core.take_late(this.queue_id, at_,
                                                  (select range_agg(int8range(id, id, '[]')) from unnest(ids) id));
        end if;
        perform spanmq_core.drop_or_bury(this, runs, at_);
        if not this.has_plain_policy and this.bells <> 0 then
            perform spanmq_core.wake_behind(this, runs);
        end if;
        -- Messages that had left the queue before have only this row left.
        delete from spanmq_core.expiry e
            where e.queue_id = this.queue_id and e.msg_id = any (ids)
              and not exists (select from spanmq_core.find_run(this.queue_id, e.msg_id));
        if cardinality(ids) < at_most then
            -- Round again, from the left: at once, if this call began further on and has found nothing.
            from_at := '-infinity';
            from_id := 0;
            exit when runs <> '{}' or is_second_round or first_at = '-infinity';
            is_second_round := true;
        end if;
        exit when runs <> '{}' or clock_timestamp() > at_ + interval '1 second';
    end loop;
    if (from_at, from_id) is distinct from (first_at, first_id) then
        insert into spanmq_core.upkeep (queue_id, expired_at, expired_to) values (this.queue_id, from_at, from_id)
            on conflict (queue_id) do update set expired_at = excluded.expired_at, expired_to = excluded.expired_to;
    end if;
    return spanmq_core.count_runs(runs);
exception when lock_not_available then
    -- Another transaction has locked one of these messages: the next call tries again. The rest of maintain() goes on.
    return 0;
end $$;

-- Dead-letters messages whose lease has expired on their last attempt, which they had alone, of up to 100 runs, and
-- those that set_vt() made visible after it, of the next 1,000 runs from where the last call ended; also without
-- receivers. In ordered queues the claims do it: only they know which message of a group was in flight. Returns their
-- number.
create or replace function spanmq_core.bury_exhausted(this spanmq_core.queue, at_ timestamptz) returns bigint
language plpgsql as $$
declare
    least_attempts int := case when this.uses_limits then 1 else this.max_attempts end;
    due_from timestamptz := (spanmq_core.bound_of(this.queue_id)).due_from;
    runs spanmq_core.run[];
    dead int8multirange;
begin
    if least_attempts is null or (spanmq_core.policy_of(this.queue_id)).ordered then
        return 0;
    end if;
    runs := array(
        select spanmq_core.run_of(h) from spanmq_core.held h
        where h.queue_id + 0 = this.queue_id and h.vt >= due_from and h.vt <= at_ and h.lease_id > 0
        and h.attempts >= least_attempts
          and spanmq_core.was_alone(spanmq_core.run_of(h))
        order by h.queue_id + 0, h.vt limit 100);
    dead := spanmq_core.exhausted(this, runs, this.max_attempts, 0);
    if not isempty(dead) then
        runs := spanmq_core.take_late(this.queue_id, at_, dead);
        perform spanmq_core.bury(this, runs, at_, spanmq_core.lease_ran_out('the lease of the last attempt ran out'));
    else
        runs := '{}';
    end if;
    return spanmq_core.count_runs(runs) + spanmq_core.bury_spent(this, at_, least_attempts);
end $$;

-- Looks without locks, which would hide messages that have attempts left from receivers until maintain() ends. A
-- message that was visible at at_, and is so still, has not been delivered since.
create or replace function spanmq_core.bury_spent(
    this spanmq_core.queue, at_ timestamptz, least_attempts int
) returns bigint
language plpgsql as $$
declare
    first_lo bigint := coalesce((select u.spent_to from spanmq_core.upkeep u where u.queue_id = this.queue_id), 0);
    next_lo bigint;                -- 0 after the last one
    tried spanmq_core.run[];
    dead int8multirange;
    run spanmq_core.run;
    runs spanmq_core.run[] := '{}';
begin
    select coalesce(array_agg(spanmq_core.run_of(l.h)) filter (where (l.h).lease_id = 0
                                                               and (l.h).attempts - (l.h).lost >= least_attempts
                                                               and (l.h).vt <= at_), '{}'),
           case when count(*) = 1000 then max((l.h).lo) + 1 else 0 end
        into tried, next_lo
        from (select h from spanmq_core.held h where h.queue_id = this.queue_id and h.lo >= first_lo
              order by h.queue_id, h.lo limit 1000) l;
    dead := spanmq_core.spent(this, tried, least_attempts);
    foreach run in array tried loop
        if dead && int8range(run.lo, run.lo + run.n) then
            runs := runs || spanmq_core.take_from_held(this.queue_id, run.lo, spanmq_core.ids_of(run.lo, run.n) * dead,
                                                       0, at_);
        end if;
    end loop;
    perform spanmq_core.bury(this, runs, at_, spanmq_core.no_attempt_left());
    if next_lo <> first_lo then
        insert into spanmq_core.upkeep (queue_id, spent_to) values (this.queue_id, next_lo)
            on conflict (queue_id) do update set spent_to = excluded.spent_to;
    end if;
    return spanmq_core.count_runs(runs);
end $$;
