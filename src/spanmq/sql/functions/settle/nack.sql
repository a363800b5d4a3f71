-- Settling other than by ack: nack (retried later, or dead), reject (dead), release (returned unhandled), extend (held
-- for another time). All are fenced by lease_id: a message that this lease no longer holds is reported stale and left
-- alone. One that was cancelled meanwhile ends, and is reported stale, too.

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
    -- Texts that fit: a failure must not cost more than the message.
    return (category, left(error, 10000), left(error_class, 500), left(traceback, 100000),
            left(worker, 500))::spanmq_core.reason;
end $$;

-- Those of these messages that have no more than `spare` attempts left, of their own number, else of max_attempts
-- (null: endless). own: without the leases that were lost beside others, which another message may have lost. Reads the
-- log only for queues where messages have numbers of their own.
create or replace function spanmq_core.exhausted(
    this spanmq_core.queue, ids bigint[], max_attempts int, spare int, own boolean
) returns bigint[]
language plpgsql as $$
declare
    found_ids bigint[];
begin
    if ids = '{}' or max_attempts is null and not this.uses_limits then
        return '{}';
    elsif not this.uses_limits then
        return array(select u.msg_id from spanmq_core.unsettled u
                     where u.queue_id = this.queue_id and u.msg_id = any (ids)
                       and u.attempts - case when own then u.lost else 0 end >= max_attempts - spare);
    end if;
    execute format(
        'select array_agg(u.msg_id) from spanmq_core.unsettled u'
        ' cross join lateral (select l.headers from spanmq_core.%I l where l.msg_id = u.msg_id offset 0) l'
        ' where u.queue_id = $1 and u.msg_id = any ($2) and u.attempts - case when $5 then u.lost else 0 end'
        '     >= coalesce(spanmq_core.own_max_attempts(l.headers), $3) - $4',
        (select spanmq_core.log_of(this.queue_id, min(id), max(id)) from unnest(ids) id))
        into found_ids using this.queue_id, ids, max_attempts, spare, own;
    return coalesce(found_ids, '{}');
end $$;

create or replace function spanmq_core.own_max_attempts(headers jsonb) returns int
language sql immutable as $$
    select case when jsonb_typeof(headers->'x-spanmq-max-attempts') = 'number'
                then greatest(least((headers->>'x-spanmq-max-attempts')::numeric, 1000), 1)::int end
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

-- Returns messages that the caller has locked to the queue, visible at once, and wakes its receivers. undelivered: see
-- give_back().
create or replace function spanmq_core.show(this spanmq_core.queue, ids bigint[], undelivered boolean) returns void
language plpgsql as $$
begin
    perform spanmq_core.give_back(this.queue_id, ids, undelivered, clock_timestamp(), 0::double precision,
                                  1::double precision, 0::double precision, false),
        spanmq_core.wake(this.queue_id, this.bells);
end $$;

-- One row for each distinct id, ascending: `held` of those among ids, dead of those among `dead`, stale of the rest.
create or replace function spanmq_core.outcomes(msg_ids bigint[], ids bigint[], dead bigint[], held text)
returns table (msg_id bigint, outcome text)
language plpgsql as $$
begin
    if dead = '{}' and cardinality(ids) = cardinality(msg_ids) then
        return query select id, held from unnest(msg_ids) id order by id;
        return;
    end if;
    return query
        select a.id, case when a.id not in (select unnest(ids)) then 'stale'
                          when a.id in (select unnest(dead)) then 'dead' else held end
        from (select distinct id from unnest(msg_ids) id where id is not null) a order by a.id;
end $$;

-- For settlements in a transaction whose snapshot is older than they are: raises 40001 if the lease may hold one of
-- these messages, of which it has not found all. A message that the snapshot has was changed since, or the lease began
-- after the transaction and the snapshot has no message of this id.
create or replace function spanmq_core.check_unfound(this_queue int, msg_ids bigint[], lease bigint) returns void
language plpgsql as $$
declare
    is_unseen boolean;
begin
    if spanmq_core.sees_now() then
        return;
    end if;
    begin
        -- The locks go with the rollback of this block, and no lock is waited for: others settle these messages.
        perform from spanmq_core.state s where s.queue_id = this_queue and s.msg_id = any (msg_ids)
            for key share skip locked;
        perform from spanmq_core.later l where l.queue_id = this_queue and l.msg_id = any (msg_ids)
            for key share skip locked;
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then null;
    end;
    execute format('select exists (select from unnest($1) id where id is not null and not exists'
                   ' (select from spanmq_core.log_%s l where l.msg_id = id))', this_queue)
        into is_unseen using msg_ids;
    if is_unseen and lease >> 20 > extract(epoch from now()) * 1000 then
        raise exception 'could not serialize access: the lease is younger than the snapshot of this transaction'
            using errcode = '40001', hint = 'Run the transaction again, or settle in READ COMMITTED.';
    end if;
end $$;

-- Returns messages to the queue with a failure. They are visible again after retry_in seconds, or after the backoff of
-- their category or queue. A message becomes a dead letter if its attempts are used up, or if its category is not
-- tried again (PERMANENT and BUSINESS, unless set otherwise). Returns one row for each distinct id, ascending:
-- retrying, dead or stale. In an ordered queue, leased messages of the same group that come after such a message are
-- released too, and their attempt does not count. With retry_in and no category, the message is tried again whatever
-- the rules of categories are. Raises MQ002 for a lease that is none, an unknown category or a negative retry_in.
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
    held record;
    dead bigint[] := '{}';
    retrying bigint[];
begin
    if retry_in is not null then
        perform spanmq_core.after(retry_in, 'retry_in');
        if retry_in < 0 then
            raise exception 'retry_in cannot be negative, got: %', retry_in
                using errcode = 'MQ002', hint = '0 means at once; null means the backoff of the policy.';
        end if;
    end if;
    held := spanmq_core.lock_leased(this, msg_ids, lease_id);
    if held.ids <> '{}' then
        if coalesce(rule.retries, true) or retry_in is not null and category is null then
            dead := spanmq_core.exhausted(this, held.ids,
                                          coalesce(rule.max_attempts, spanmq_core.attempts_of(policy)), 0, true);
        else
            dead := held.ids;
        end if;
        retrying := spanmq_core.without(held.ids, dead);
        if retrying <> '{}' then
            if retry_in is null then
                perform spanmq_core.give_back(
                    this.queue_id, retrying, false, at_, coalesce(rule.backoff_base, policy.backoff_base),
                    coalesce(rule.backoff_factor, policy.backoff_factor),
                    coalesce(rule.backoff_max, policy.backoff_max), policy.jitter);
            else
                perform spanmq_core.give_back(this.queue_id, retrying, false, at_, retry_in, 1::double precision,
                                              retry_in, false);
            end if;
            perform spanmq_core.note_failure(this.queue_id, retrying, at_, 'retrying', reason);
            if this.bells <> 0 and exists (select from spanmq_core.later l
                                           where l.queue_id = this.queue_id and l.msg_id = any (retrying)
                                             and not spanmq_core.is_foreseen(l.vt)) then
                perform spanmq_core.wake(this.queue_id, this.bells);
            end if;
        end if;
        if held.behind <> '{}' then
            perform spanmq_core.show(this, held.behind, true);
        end if;
        perform spanmq_core.bury(this, dead, at_, reason, null::bigint), spanmq_core.end_batches_of(this, dead);
    end if;
    if cardinality(held.ids) < cardinality(msg_ids) then
        perform spanmq_core.check_unfound(this.queue_id, msg_ids, lease_id);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, held.ids, dead, 'retrying');
end $$;

-- Makes messages dead letters at once. One row for each distinct id, ascending: dead or stale. Without a category the
-- rules decide; if no rule matches, the category is PERMANENT. With UNKNOWN, as for messages that have used up the
-- attempts of their task, the rules decide, too; if no rule matches, it stays UNKNOWN. Leased messages behind them in
-- the same ordered group are released.
create or replace function spanmq_call.reject(
    queue text, lease_id bigint, msg_ids bigint[], error text default null, category text default null,
    error_class text default null, traceback text default null, worker text default null
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reason spanmq_core.reason := spanmq_core.reason_of(this.queue_id, category, error, error_class, traceback, worker);
    held record;
begin
    if category is null and reason.category = 'UNKNOWN' then
        reason.category := 'PERMANENT';
    elsif category = 'UNKNOWN' then
        reason.category := spanmq_core.classify_error(this.queue_id, error_class, error);
    end if;
    held := spanmq_core.lock_leased(this, msg_ids, lease_id);
    if held.ids <> '{}' then
        if held.behind <> '{}' then
            perform spanmq_core.show(this, held.behind, true);
        end if;
        perform spanmq_core.bury(this, held.ids, clock_timestamp(), reason, null::bigint),
            spanmq_core.end_batches_of(this, held.ids);
    end if;
    if cardinality(held.ids) < cardinality(msg_ids) then
        perform spanmq_core.check_unfound(this.queue_id, msg_ids, lease_id);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, held.ids, '{}'::bigint[], 'dead');
end $$;

-- Releases messages that were not handled, as a stopping worker does: they are visible at once, and this delivery does
-- not count as an attempt. One row for each distinct id, ascending: released or stale. Leased messages behind them in
-- the same ordered group are released, too.
create or replace function spanmq_call.release(
    queue text, lease_id bigint, msg_ids bigint[]
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    held record;
begin
    held := spanmq_core.lock_leased(this, msg_ids, lease_id);
    if held.ids <> '{}' then
        perform spanmq_core.show(this, held.ids || held.behind, true);
    end if;
    if cardinality(held.ids) < cardinality(msg_ids) then
        perform spanmq_core.check_unfound(this.queue_id, msg_ids, lease_id);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, held.ids, '{}'::bigint[], 'released');
end $$;

-- Holds messages of a lease for at least `seconds` from now on; with shorten, for this time also where they are held
-- longer. They stay part of the lease; its other messages do not change. Returns one row for each distinct id,
-- ascending: extended or stale. An expired lease is extended for the messages that no other receiver has received.
-- Raises MQ002 for a lease that is none and for no seconds.
create or replace function spanmq_call.extend(
    queue text, lease_id bigint, msg_ids bigint[], seconds double precision, shorten boolean default false
) returns table (msg_id bigint, outcome text)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    until timestamptz := spanmq_core.after(seconds, 'seconds');
    ids bigint[];
begin
    perform spanmq_core.check_lease(lease_id, msg_ids);
    perform spanmq_core.raise_if(seconds <= 0,
        format('seconds must be more than 0, got: %s', seconds), 'release() makes messages visible at once.');
    with longer as (
        update spanmq_core.state s set vt = case when shorten then until else greatest(s.vt, until) end
            where s.queue_id = this.queue_id and s.msg_id = any (msg_ids) and s.lease_id = extend.lease_id
            returning s.msg_id)
    select coalesce(array_agg(l.msg_id), '{}') into ids from longer l;
    if cardinality(ids) < cardinality(msg_ids) then
        perform spanmq_core.heed_clock(this.queue_id);
        with longer as (
            update spanmq_core.later s
                set vt = greatest(until, clock_timestamp(), case when not shorten then s.vt end)
                where s.queue_id = this.queue_id and s.msg_id = any (msg_ids) and s.lease_id = extend.lease_id
                returning s.msg_id)
        select ids || array_agg(l.msg_id) into ids from longer l;
    end if;
    if cardinality(ids) < cardinality(msg_ids) then
        perform spanmq_core.check_unfound(this.queue_id, msg_ids, lease_id);
    end if;
    return query select * from spanmq_core.outcomes(msg_ids, ids, '{}'::bigint[], 'extended');
end $$;
