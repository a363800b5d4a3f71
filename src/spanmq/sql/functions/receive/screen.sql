-- Looking through what a claim took, in queues whose messages have a limit (queue.max_attempts, or queue.uses_limits:
-- numbers of attempts and expiries of their own). Nothing else comes here.
--
-- An expired lease shows that its worker died or was too slow, perhaps because of one of its messages. So what
-- comes from such a lease is delivered by itself, in halves of what is left of the lease, and alone for its last two
-- attempts: then a message that kills its worker takes no others along. Messages that are not delivered stay a run of
-- the expired lease. In an ordered group only the first message of such a lease is known to have been started. The
-- delivery of those behind it does not count as an attempt; but one of them may be the one that kills. They are
-- suspects, and delivered one by one.

-- The lease of suspects. No receiver is given this number, and none may use it.
create or replace function spanmq_core.suspects() returns bigint
language sql immutable as $$ select 9223372036854775807 $$;

-- Returns the runs of a claim that may be delivered, to be leased or (`leases` false) removed; the others become dead
-- letters or return to the queue. In order (the policy's, or a grouped read's): no message of a group is delivered
-- behind one that returns, nor behind one that becomes a dead letter, if the policy makes groups wait for those.
create or replace function spanmq_core.screen(
    this spanmq_core.queue, runs spanmq_core.run[], leases boolean, at_ timestamptz, mode text
) returns spanmq_core.run[]
language plpgsql as $$
declare
    expired int8multirange := '{}';
    policy spanmq_core.policy;
    least_attempts int := case when this.uses_limits then 1 else this.max_attempts end;
    has_late boolean := false;     -- messages of an expired lease, or possibly without attempts left
    late spanmq_core.run[];
    dead int8multirange := '{}';
    spent int8multirange;
    buried spanmq_core.run[] := '{}';
    waiting int8multirange := '{}';        -- messages behind a dead letter for which their group waits
    alone int8multirange := '{}';
    run spanmq_core.run;
    piece spanmq_core.run;
    rest spanmq_core.run;
    kept spanmq_core.run[] := '{}';
    back spanmq_core.run[] := '{}';
    is_late boolean;               -- delivered messages: the rest of one expired lease, or those of none
    late_lease bigint;
    room int;
    is_ordered boolean := mode is not null;
    held text[] := '{}';           -- the groups of which something goes back
    key text;
begin
    if this.uses_limits then
        select coalesce(range_agg(int8range(e.msg_id, e.msg_id, '[]')), '{}') into expired
            from unnest(runs) r
            join spanmq_core.expiry e on e.queue_id = this.queue_id and e.msg_id >= r.lo and e.msg_id < r.lo + r.n
            where e.expires_at <= at_;
    end if;
    foreach run in array runs loop
        has_late := has_late or run.lease_id <> 0 or run.attempts >= least_attempts;
    end loop;
    if isempty(expired) and not has_late then
        return runs;
    end if;
    if has_late then
        spent := spanmq_core.spent(this, runs, least_attempts) - expired;
        if isempty(expired) and isempty(spent) and 0 = all (array(select r.lease_id from unnest(runs) r)) then
            return runs;
        end if;
        dead := spent;
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    if not isempty(expired) then
        late := spanmq_core.runs_among(runs, expired);
        perform spanmq_core.drop_or_bury(this, late, at_);
        if not policy.drop_expired then
            buried := late;
        end if;
    end if;
    if has_late then
        late := spanmq_core.runs_among(runs, dead);
        perform spanmq_core.bury(this, late, at_, spanmq_core.no_attempt_left());
        buried := buried || late;
        if policy.ordered then
            is_ordered := true;
            runs := spanmq_core.without_followers(runs);
        end if;
        late := array(select r from unnest(spanmq_core.runs_among(runs, spanmq_core.ids_of_runs(runs) - expired)) r where r.lease_id <> 0);
        spent := spanmq_core.exhausted(this, late, this.max_attempts, 0);
        alone := spanmq_core.exhausted(this, late, this.max_attempts, 2)
                 + coalesce(spanmq_core.ids_of_runs(array(select r from unnest(late) r where r.lease_id = spanmq_core.suspects())), '{}');
        perform spanmq_core.bury(this, spanmq_core.runs_among(late, spent), at_, spanmq_core.lease_ran_out('the lease of the last attempt ran out'));
        buried := buried || spanmq_core.runs_among(late, spent);
        dead := dead + spent;
    end if;
    if policy.dead_letter_blocks_group and (is_ordered or policy.ordered or policy.max_in_flight_per_group is not null) then
        waiting := spanmq_core.behind(runs, buried) - expired - dead;
        back := spanmq_core.runs_among(runs, waiting);
    end if;
    foreach run in array runs loop
        foreach piece in array spanmq_core.run_without(run, spanmq_core.ids_of(run.lo, run.n) * (expired + dead + waiting)) loop
            if is_late is null then
                is_late := piece.lease_id <> 0 and leases and (this.max_attempts is not null or piece.lo <@ alone);
                late_lease := piece.lease_id;
                room := case
                    when is_late and piece.lo <@ alone then 1
                    when is_late then ceil((select sum(l.n) from unnest(late) l where l.lease_id = late_lease) / 2.0) end;
            end if;
            key := coalesce('=' || piece.group_key, '');
            if not leases then
                kept := kept || piece;
            elsif is_ordered and key = any (held) then
                back := back || piece;
            elsif not is_late and (piece.lease_id = 0 or this.max_attempts is null and not piece.lo <@ alone) then
                kept := kept || piece;
            elsif is_late and piece.lease_id = late_lease and room > 0 then
                if piece.n > room then
                    rest := piece;
                    rest.lo := piece.lo + room;
                    rest.n := piece.n - room;
                    back := back || rest;
                    held := held || key;
                    piece.n := room;
                end if;
                room := room - piece.n;
                kept := kept || piece;
            else
                back := back || piece;
                held := held || key;
            end if;
        end loop;
    end loop;
    perform spanmq_core.put_back(this.queue_id, back);
    late := array(select r from unnest(kept) r where leases and r.lease_id not in (0, spanmq_core.suspects()));
    if late <> '{}' and this.max_attempts is null then
        -- Those with a number of attempts of their own, which is at most 1000.
        late := spanmq_core.runs_among(late, spanmq_core.exhausted(this, late, null, 1000));
    end if;
    if late <> '{}' then
        perform spanmq_core.note_failure(this.queue_id, late, at_, 'expired', spanmq_core.lease_ran_out('the lease ran out'));
    end if;
    return kept;
end $$;

create or replace function spanmq_core.no_attempt_left() returns spanmq_core.reason
language sql immutable as $$
    select ('UNKNOWN', 'the last attempt ended without an outcome', 'NoAttemptLeft', null, null)::spanmq_core.reason
$$;

create or replace function spanmq_core.lease_ran_out(error text) returns spanmq_core.reason
language sql immutable as $$ select ('UNKNOWN', error, 'LeaseExpired', null, null)::spanmq_core.reason $$;

-- Those messages of runs that come from no lease and yet have no attempt left: set_vt() showed them again after their last. Not those
-- that failed and may be tried again: their category may have more attempts than the queue.
create or replace function spanmq_core.spent(this spanmq_core.queue, runs spanmq_core.run[], least_attempts int) returns int8multirange
language plpgsql as $$
declare
    dead int8multirange;
begin
    runs := array(select r from unnest(runs) r where r.lease_id = 0 and r.attempts >= least_attempts);
    if runs = '{}' then
        return '{}';
    end if;
    dead := spanmq_core.exhausted(this, runs, this.max_attempts, 0);
    if isempty(dead) then
        return dead;
    end if;
    return dead - (
        select coalesce(range_agg(piece), '{}')
        from unnest(runs) r
        join spanmq_core.failure f on f.queue_id = this.queue_id and f.lo >= r.lo - r.lo % 256 and f.lo < r.lo - r.lo % 256 + 256
                                 and f.outcome = 'retrying' and f.attempt >= r.attempts
        cross join unnest(spanmq_core.ids_of(f) * spanmq_core.ids_of(r.lo, r.n)) piece);
end $$;

-- The messages of runs that are behind one of these dead letters in their group.
create or replace function spanmq_core.behind(runs spanmq_core.run[], buried spanmq_core.run[]) returns int8multirange
language plpgsql immutable as $$
begin
    return (
        select coalesce(range_agg(int8range(greatest(r.lo, first.lo + 1), r.lo + r.n)), '{}')
        from unnest(runs) r
        join (select b.group_key, min(b.lo) as lo from unnest(buried) b group by b.group_key) first on first.group_key = r.group_key
        where r.lo + r.n > first.lo + 1);
end $$;

-- Runs, with those messages as suspects that are behind the first one of their group in an expired lease.
create or replace function spanmq_core.without_followers(runs spanmq_core.run[]) returns spanmq_core.run[]
language plpgsql immutable as $$
declare
    run spanmq_core.run;
    head spanmq_core.run;
    seen text[] := '{}';
    result spanmq_core.run[] := '{}';
begin
    foreach run in array runs loop
        if run.lease_id in (0, spanmq_core.suspects()) then
            result := result || run;
            continue;
        end if;
        if coalesce('=' || run.group_key, '') <> all (seen) then
            seen := seen || coalesce('=' || run.group_key, '');
            if run.n = 1 then
                result := result || run;
                continue;
            end if;
            head := run;
            head.n := 1;
            result := result || head;
            run.lo := run.lo + 1;
            run.n := run.n - 1;
        end if;
        run.lease_id := spanmq_core.suspects();
        run.attempts := greatest(run.attempts - 1, 0);
        result := result || run;
    end loop;
    return result;
end $$;

-- Messages that expired, taken out of the queue: dead letters, unless the policy drops them.
create or replace function spanmq_core.drop_or_bury(this spanmq_core.queue, runs spanmq_core.run[], at_ timestamptz) returns void
language plpgsql as $$
declare
    reason spanmq_core.reason := ('EXPIRED', 'the message expired before it was handled', null, null, null)::spanmq_core.reason;
begin
    if runs = '{}' then
        return;
    end if;
    if (spanmq_core.policy_of(this.queue_id)).drop_expired then
        -- For state(): these are not completed.
        perform spanmq_core.note_failure(this.queue_id, runs, at_, 'cancelled', reason);
    else
        perform spanmq_core.bury(this, runs, at_, reason);
    end if;
    delete from spanmq_core.expiry e where e.queue_id = this.queue_id and e.msg_id = any (array(select spanmq_core.expand_runs(runs)));
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
                  where e.queue_id = this.queue_id and e.expires_at <= at_ and (e.expires_at, e.msg_id) > (from_at, from_id)
                  order by e.queue_id, e.expires_at, e.msg_id limit at_most) n;
        from_id := ids[cardinality(ids)];
        free := spanmq_core.lock_free(this.queue_id, ids);
        runs := spanmq_core.take_out(this.queue_id, free, 0, true);
        if spanmq_core.count_runs(runs) < cardinality(ids) then
            runs := runs || spanmq_core.take_late(this.queue_id, at_, (select range_agg(int8range(id, id, '[]')) from unnest(ids) id));
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

-- Dead-letters messages whose lease has expired on their last attempt, of up to 100 runs, and those that set_vt() made
-- visible after it, of the next 1,000 runs from where the last call ended; also without receivers. In ordered queues
-- the claims do it: only they know which message of a group was in flight. Returns their number.
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
        where h.queue_id + 0 = this.queue_id and h.vt >= due_from and h.vt <= at_ and h.lease_id > 0 and h.attempts >= least_attempts
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

-- Looks without locks, which would hide messages that have attempts left from receivers until maintain() ends. A message that was visible
-- at at_, and is so still, has not been delivered since.
create or replace function spanmq_core.bury_spent(this spanmq_core.queue, at_ timestamptz, least_attempts int) returns bigint
language plpgsql as $$
declare
    first_lo bigint := coalesce((select u.spent_to from spanmq_core.upkeep u where u.queue_id = this.queue_id), 0);
    next_lo bigint;                -- 0 after the last one
    tried spanmq_core.run[];
    dead int8multirange;
    run spanmq_core.run;
    runs spanmq_core.run[] := '{}';
begin
    select coalesce(array_agg(spanmq_core.run_of(l.h)) filter (where (l.h).lease_id = 0 and (l.h).attempts >= least_attempts and (l.h).vt <= at_), '{}'),
           case when count(*) = 1000 then max((l.h).lo) + 1 else 0 end
        into tried, next_lo
        from (select h from spanmq_core.held h where h.queue_id = this.queue_id and h.lo >= first_lo order by h.queue_id, h.lo limit 1000) l;
    dead := spanmq_core.spent(this, tried, least_attempts);
    foreach run in array tried loop
        if dead && int8range(run.lo, run.lo + run.n) then
            runs := runs || spanmq_core.take_from_held(this.queue_id, run.lo, spanmq_core.ids_of(run.lo, run.n) * dead, 0, at_);
        end if;
    end loop;
    perform spanmq_core.bury(this, runs, at_, spanmq_core.no_attempt_left());
    if next_lo <> first_lo then
        insert into spanmq_core.upkeep (queue_id, spent_to) values (this.queue_id, next_lo)
            on conflict (queue_id) do update set spent_to = excluded.spent_to;
    end if;
    return spanmq_core.count_runs(runs);
end $$;
