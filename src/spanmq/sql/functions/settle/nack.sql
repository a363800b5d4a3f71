-- Settling other than by ack: nack (retried later, or dead), reject (dead), release (returned unhandled), extend (held
-- longer), hold (single messages held for another time). All are fenced by lease_id: a message that this lease no
-- longer holds is reported stale and left alone. One that was cancelled meanwhile ends, and is reported stale, too.

-- The reason that a caller gave, with its category: that which it names, else what the rules make of the error.
-- Raises MQ002 for a category that is none.
create or replace function spanmq_core.reason_of(
    this_queue int, category text, error text, error_class text, traceback text, worker text
) returns spanmq_core.reason
language plpgsql stable as $$
begin
    if category is null then
        category := spanmq_core.classify_error(this_queue, error_class, error);
    else
        perform spanmq_core.check_category(category);
    end if;
    return (category, error, error_class, traceback, worker)::spanmq_core.reason;
end $$;

-- Those messages of runs that have no more than `spare` attempts left, of their own number, else of max_attempts (null:
-- endless). Reads the log only for queues where messages have numbers of their own.
create or replace function spanmq_core.exhausted(
    this spanmq_core.queue, runs spanmq_core.run[], max_attempts int, spare int
) returns int8multirange
language plpgsql as $$
declare
    run spanmq_core.run;
begin
    if this.uses_limits then
        return (select coalesce(range_agg(int8range(m.msg_id, m.msg_id, '[]')), '{}')
                from spanmq_core.fetch(this.queue_id, runs, 0, null, null, true) m
                where m.read_ct >= coalesce(spanmq_core.own_max_attempts(m.headers), max_attempts) - spare);
    end if;
    if max_attempts is not null then
        foreach run in array runs loop
            if run.attempts >= max_attempts - spare then
                -- At once: adding ranges to each other in a loop takes seconds for thousands.
                return (select range_agg(int8range(r.lo, r.lo + r.n)) from unnest(runs) r
                        where r.attempts >= max_attempts - spare);
            end if;
        end loop;
    end if;
    return '{}';
end $$;

create or replace function spanmq_core.own_max_attempts(headers jsonb) returns int
language sql immutable as $$
    select case when jsonb_typeof(headers->'x-spanmq-max-attempts') = 'number'
                then greatest(least((headers->>'x-spanmq-max-attempts')::numeric, 1000), 1)::int end
$$;

-- Seconds to wait after this many attempts: least(max, base * factor^(attempts - 1)), or with full jitter a random part
-- of it.
create or replace function spanmq_core.backoff(attempts int, base double precision, factor double precision,
                                               most double precision, jitter boolean)
returns double precision
language sql volatile as $$
    -- At most a century.
    select least(3e9, case
        when base <= 0 then 0
        -- In logarithms, for the power may be larger than any number.
        when ln(base) + greatest(attempts - 1, 0) * ln(factor) >= ln(greatest(most, 1e-9)) then most
        else base * power(factor, greatest(attempts - 1, 0)) end)
        * case when jitter then random() else 1 end
$$;

create or replace function spanmq_core.check_lease(lease_id bigint, msg_ids bigint[]) returns void
language plpgsql immutable as $$
begin
    if msg_ids is null or (lease_id > 0) is not true and msg_ids <> '{}' then
        raise exception 'lease_id must be one that receive() returned and msg_ids an array, got: % and %', lease_id,
            msg_ids
            using errcode = 'MQ002', hint = 'Pass both as receive() returned them.';
    end if;
end $$;

-- Returns taken messages to the queue, and wakes its receivers.
create or replace function spanmq_core.return_to(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
begin
    perform spanmq_core.give_back(this.queue_id, runs);
    if this.bells <> 0 and not (select bool_and(spanmq_core.is_foreseen(r.vt)) from unnest(runs) r) then
        perform spanmq_core.wake(this);
    end if;
end $$;

-- In an ordered queue: releases the leased messages of these runs' groups that follow them. They have left their lease.
create or replace function spanmq_core.release_behind(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
declare
    first record;
begin
    if not (spanmq_core.policy_of(this.queue_id)).ordered then
        return;
    end if;
    for first in select r.group_key, min(r.lo) as id from unnest(runs) r group by r.group_key order by 2 loop
        perform spanmq_core.release_followers(this.queue_id, first.group_key, first.id);
    end loop;
end $$;

-- One row for each distinct id, ascending: `held` of those in runs, dead of those in `dead`, stale of the rest.
create or replace function spanmq_core.outcomes(msg_ids bigint[], runs spanmq_core.run[], dead int8multirange,
                                                held text)
returns table (msg_id bigint, outcome text)
language plpgsql as $$
declare
    -- Looked up in, not joined with: to compare each id with each run costs the square of their number.
    taken int8multirange;
begin
    if isempty(dead) and spanmq_core.count_runs(runs) = cardinality(msg_ids) then
        return query select id, held from unnest(msg_ids) id order by id;
        return;
    end if;
    taken := coalesce(spanmq_core.ids_of_runs(runs), '{}');
    return query
        select a.id, case when not a.id <@ taken then 'stale' when a.id <@ dead then 'dead' else held end
        from (select distinct id from unnest(msg_ids) id where id is not null) a order by a.id;
end $$;

-- Returns messages to the queue with a failure. They are visible again after retry_in seconds, or the backoff of their
-- category or queue; those whose attempts are used up, or whose category is not tried again (PERMANENT and BUSINESS,
-- unless set otherwise), become dead letters. One row for each distinct id, ascending: retrying, dead or stale. In an
-- ordered queue, what is leased of the same group behind such a message is released too, and its attempt does not
-- count. With a retry_in and no category it is tried again whatever the rules say. Raises MQ002 for a lease that is
-- none, an unknown category or a negative retry_in.
create or replace function spanmq_call.nack(
    queue text, lease_id bigint, msg_ids bigint[], error text default null, category text default null,
    retry_in double precision default null, error_class text default null, traceback text default null,
    worker text default null
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    reason spanmq_core.reason := spanmq_core.reason_of(this.queue_id, category, error, error_class, traceback, worker);
    policy spanmq_core.policy := spanmq_core.policy_of(this.queue_id);
    rule spanmq_core.category_policy := spanmq_core.category_settings(this.queue_id, reason.category);
    retry_at timestamptz;
    runs spanmq_core.run[];
    retrying spanmq_core.run[];
    dead int8multirange := '{}';
    run spanmq_core.run;
    drawn_for bigint;              -- a block
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    if retry_in is not null then
        perform spanmq_core.after(retry_in, 'retry_in');
        if retry_in < 0 then
            raise exception 'retry_in cannot be negative, got: %', retry_in
                using errcode = 'MQ002', hint = '0 is at once; null is as the policy says.';
        end if;
    end if;
    runs := spanmq_core.end_cancelled(this, spanmq_core.take_out(this.queue_id, msg_ids, lease_id));
    if runs <> '{}' then
        if coalesce(rule.retries, true) or retry_in is not null and category is null then
            dead := spanmq_core.exhausted(this, array(select spanmq_core.counted(r) from unnest(runs) r),
                                          coalesce(rule.max_attempts, spanmq_core.attempts_of(policy)), 0);
        else
            dead := spanmq_core.ids_of_runs(runs);
        end if;
        retrying := runs;
        if not isempty(dead) then
            perform spanmq_core.bury(this, spanmq_core.runs_among(runs, dead), at_, reason);
            retrying := spanmq_core.runs_among(runs, spanmq_core.ids_of_runs(runs) - dead);
        end if;
        if retrying <> '{}' then
            -- One draw for each block of ids: its messages that failed together are retried together, and cost one run
            -- and one failure.
            for i in 1 .. cardinality(retrying) loop
                run := retrying[i];
                if run.lo / 256 is distinct from drawn_for
                    or run.attempts is distinct from retrying[i - 1].attempts then
                    drawn_for := run.lo / 256;
                    retry_at := coalesce(at_ + make_interval(secs => retry_in),
                                         at_ + make_interval(secs => spanmq_core.backoff(
                        run.attempts, coalesce(rule.backoff_base, policy.backoff_base),
                            coalesce(rule.backoff_factor, policy.backoff_factor),
                        coalesce(rule.backoff_max, policy.backoff_max), policy.jitter)));
                end if;
                run.vt := retry_at;
                retrying[i] := run;
            end loop;
            perform spanmq_core.return_to(this, retrying);
            perform spanmq_core.note_failure(this.queue_id, retrying, at_, 'retrying', reason);
        end if;
        if not this.has_plain_policy then
            perform spanmq_core.release_behind(this, runs);
        end if;
        if not isempty(dead) then
            perform spanmq_core.tell_settled(this, spanmq_core.runs_among(runs, dead));
        end if;
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, runs, dead, 'retrying');
end $$;

-- Makes messages dead letters at once. One row for each distinct id, ascending: dead or stale. Without a category the
-- rules decide; if none matches, it is PERMANENT. Leased messages behind them in the same ordered group are released.
create or replace function spanmq_call.reject(
    queue text, lease_id bigint, msg_ids bigint[], error text default null, category text default null,
    error_class text default null, traceback text default null, worker text default null
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reason spanmq_core.reason := spanmq_core.reason_of(this.queue_id, category, error, error_class, traceback, worker);
    runs spanmq_core.run[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    if category is null and reason.category = 'UNKNOWN' then
        reason.category := 'PERMANENT';
    end if;
    runs := spanmq_core.end_cancelled(this, spanmq_core.take_out(this.queue_id, msg_ids, lease_id));
    if runs <> '{}' then
        perform spanmq_core.bury(this, runs, clock_timestamp(), reason);
        if not this.has_plain_policy then
            perform spanmq_core.release_behind(this, runs);
        end if;
        perform spanmq_core.tell_settled(this, runs);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, runs, '{}', 'dead');
end $$;

-- Releases messages that were not handled: visible at once, and this delivery does not count as an attempt. For a
-- worker that stops. One row for each distinct id, ascending: released or stale. What is leased of the same ordered
-- group behind them goes back.
create or replace function spanmq_call.release(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    runs spanmq_core.run[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    runs
        := spanmq_core.join_runs(spanmq_core.end_cancelled(this,
                                                           spanmq_core.take_out(this.queue_id, msg_ids, lease_id)));
    if runs <> '{}' then
        perform spanmq_core.return_to(this, array(select spanmq_core.undelivered(r) from unnest(runs) r));
        if not this.has_plain_policy then
            perform spanmq_core.release_behind(this, runs);
        end if;
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, runs, '{}', 'released');
end $$;

-- Holds the messages of a lease for at least `seconds` from now on: never shorter than before. Returns their number; 0:
-- the lease is stale, all of its messages were settled or received by others. An expired lease is held again if its
-- messages were not received meanwhile: only those that it still holds.
create or replace function spanmq_call.extend(queue text, lease_id bigint, seconds double precision) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    until timestamptz := spanmq_core.after(seconds, 'seconds');
    held bigint;
    is_done boolean;
begin
    perform spanmq_core.check_lease(lease_id, '{0}');
    perform spanmq_core.raise_if(seconds <= 0,
        format('seconds must be more than 0, got: %s', seconds), 'release() makes messages visible at once.');
    -- Until a statement begun after the last wait finds none that ends before: messages of the lease may have moved to
    -- other rows.
    for round in 1 .. 100 loop
        with locked as materialized (
            select h.ctid as place from spanmq_core.held h
            where h.queue_id + 0 = this.queue_id and h.lease_id = extend.lease_id and h.lease_id <> 0 and h.vt < until
            order by h.lo for no key update)
        update spanmq_core.held h set vt = until from locked k where h.ctid = k.place and h.vt < until;
        select coalesce(sum(spanmq_core.count_left(h)), 0), coalesce(bool_and(h.vt >= until), true) into held, is_done
            from spanmq_core.held h where h.queue_id + 0 = this.queue_id and h.lease_id = extend.lease_id
            and h.lease_id <> 0;
        exit when is_done;
    end loop;
    return held;
end $$;

-- Holds these messages of a lease for `seconds` from now on, longer or shorter than before; the others of the lease
-- stay as they were. They stay in the lease, so whatever settles or extends it finds them. One row for each distinct
-- id, ascending: held or stale. Raises MQ002 for a lease that is none and for no seconds.
create or replace function spanmq_call.hold(queue text, lease_id bigint, msg_ids bigint[], seconds double precision)
returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    until timestamptz := spanmq_core.after(seconds, 'seconds');
    runs spanmq_core.run[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    perform spanmq_core.raise_if(seconds <= 0,
        format('seconds must be more than 0, got: %s', seconds), 'release() makes messages visible at once.');
    runs := spanmq_core.take_out(this.queue_id, msg_ids, lease_id);
    perform spanmq_core.heed_clock(this.queue_id);
    insert into spanmq_core.held (queue_id, lo, n, lease_id, attempts, lost, alone, vt, last_read_at, priority,
                                  group_hash, group_key)
        select this.queue_id, r.lo, r.n, hold.lease_id, r.attempts, r.lost, r.alone, greatest(until, clock_timestamp()),
        r.last_read_at, r.priority,
               r.group_hash, r.group_key
        from unnest(runs) r;
    return query select * from spanmq_core.outcomes(msg_ids, runs, '{}', 'held');
end $$;
