-- Looking through what a claim took, in queues whose messages have a limit (queue.max_attempts, or queue.uses_limits:
-- numbers of attempts and expiries of their own). Nothing else comes here. Which messages must be delivered alone:
-- alone.sql.

-- Returns those messages of a claim, in its order, that may be leased or (`leases` false) removed; of the others some
-- become dead letters, and the rest stays as it is. isolates: if there are messages that must be delivered alone, these
-- are marked, and none is returned. In order (the policy's, or a grouped read's): no message of a group is delivered
-- behind one that becomes a dead letter, if the policy makes groups wait for those.
create or replace function spanmq_core.screen(
    this spanmq_core.queue, ids bigint[], leases boolean, isolates boolean, at_ timestamptz, mode text
) returns bigint[]
language plpgsql as $$
declare
    no_attempt_left spanmq_core.reason := ('UNKNOWN', 'the last attempt ended without an outcome', 'NoAttemptLeft',
                                           null, null)::spanmq_core.reason;
    last_ran_out spanmq_core.reason := ('UNKNOWN', 'the lease of the last attempt ran out', 'LeaseExpired', null,
                                        null)::spanmq_core.reason;
    policy spanmq_core.policy;
    met record;
    gone bigint[];
    late bigint[];
    has_buried boolean;
begin
    met := spanmq_core.sort_out(this, ids, isolates, at_);
    gone := met.expired || met.used_up || met.lapsed;
    if gone = '{}' and met.late = '{}' then
        return ids;
    end if;
    if leases then
        -- Not of messages without a limit, and once: what goes back beside suspects is looked through again.
        late := array(
            select u.msg_id from spanmq_core.unsettled u
            where u.queue_id = this.queue_id and u.lease_id + 0 <> 0 and u.alone <> 1
              and u.msg_id = any (case when met.suspects = '{}' then met.late else met.suspects end));
        perform spanmq_core.note_failure(
            this.queue_id, spanmq_core.exhausted(this, late, this.max_attempts, 1000, false), at_, 'expired',
            ('UNKNOWN', 'the lease ran out', 'LeaseExpired', null, null)::spanmq_core.reason);
    end if;
    if met.suspects <> '{}' then
        -- Before any becomes a dead letter: one that blocks its group would keep the messages in front of it there.
        perform spanmq_core.move_to_later(this.queue_id, met.suspects);
        update spanmq_core.later l set lost = spanmq_core.losses(l.lost, l.lease_id, l.alone), alone = 1
            where l.queue_id = this.queue_id and l.msg_id = any (met.suspects);
        return '{}';
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    has_buried := spanmq_core.drop_or_bury(this, met.expired, at_);
    has_buried := spanmq_core.bury(this, met.used_up, at_, no_attempt_left, null::bigint) > 0 or has_buried;
    has_buried := spanmq_core.bury(this, met.lapsed, at_, last_ran_out, null::bigint) > 0 or has_buried;
    ids := spanmq_core.without(ids, gone);
    if has_buried and policy.dead_letter_blocks_group
        and (mode is not null or spanmq_core.regards_groups(policy)) then
        -- Those without a group wait for nothing.
        ids := spanmq_core.without(ids, array(
            select u.msg_id from spanmq_core.unsettled u
            where u.queue_id = this.queue_id and u.msg_id = any (ids)
              and exists (select from spanmq_core.blocked_group b
                          where b.queue_id = this.queue_id and b.group_hash = u.group_hash
                            and b.msg_id < u.msg_id)));
    end if;
    return ids;
end $$;

-- As what a claim meets these visible messages: those that have expired; that have no attempt left (spent()); whose
-- last lease, which they had alone, was lost; others that a lease had, that are set aside, or may be out of attempts;
-- and of these, if it isolates, those that must be delivered alone.
create or replace function spanmq_core.sort_out(
    this spanmq_core.queue, ids bigint[], isolates boolean, at_ timestamptz, out expired bigint[], out used_up bigint[],
    out lapsed bigint[], out late bigint[], out suspects bigint[]
)
language plpgsql as $$
declare
    least_attempts int := case when this.uses_limits then 1 else this.max_attempts end;
begin
    expired := '{}';
    used_up := '{}';
    lapsed := '{}';
    suspects := '{}';
    if this.uses_limits then
        expired := array(select e.msg_id from spanmq_core.expiry e
                         where e.queue_id = this.queue_id and e.msg_id = any (ids) and e.expires_at <= at_);
    end if;
    late := array(select u.msg_id from spanmq_core.unsettled u
                  where u.queue_id = this.queue_id and u.msg_id = any (spanmq_core.without(ids, expired))
                    and (u.lease_id <> 0 or u.alone > 0 or u.attempts >= least_attempts));
    if late = '{}' then
        return;
    end if;
    used_up := spanmq_core.spent(this, late, least_attempts);
    late := spanmq_core.without(late, used_up);
    lapsed := spanmq_core.exhausted(this, array(
        select u.msg_id from spanmq_core.unsettled u
        where u.queue_id = this.queue_id and u.msg_id = any (late)
          and spanmq_core.was_alone(u.lease_id + 0, u.alone, u.attempts)), this.max_attempts, 0, false);
    late := spanmq_core.without(late, lapsed);
    if isolates then
        -- Those that were set aside or have lost three leases, and those with one attempt left.
        suspects := spanmq_core.exhausted(this, array(
                select u.msg_id from spanmq_core.unsettled u
                where u.queue_id = this.queue_id and u.msg_id = any (late)
                  and (u.alone > 0 or u.lease_id > 0 and u.lost >= 2)), this.max_attempts, 1000, false)
            || spanmq_core.exhausted(this, array(
                select u.msg_id from spanmq_core.unsettled u
                where u.queue_id = this.queue_id and u.msg_id = any (late) and u.lease_id + 0 > 0),
                this.max_attempts, 1, false);
    end if;
end $$;

-- Those of these messages that come from no lease and yet have no attempt left: set_vt() showed them again after their
-- last. Not those that failed and may be tried again: their category may have more attempts than the queue.
create or replace function spanmq_core.spent(
    this spanmq_core.queue, ids bigint[], least_attempts int
) returns bigint[]
language plpgsql as $$
declare
    dead bigint[] := spanmq_core.exhausted(this, array(
        select u.msg_id from spanmq_core.unsettled u
        where u.queue_id = this.queue_id and u.msg_id = any (ids) and u.lease_id = 0 and u.alone = 0
          and u.attempts - u.lost >= least_attempts), this.max_attempts, 0, true);
begin
    return spanmq_core.without(dead, array(
        select u.msg_id from spanmq_core.unsettled u
        where u.queue_id = this.queue_id and u.msg_id = any (dead)
          and exists (select from spanmq_core.failures_of(this.queue_id, u.msg_id) f
                      where f.outcome = 'retrying' and f.attempt >= u.attempts)));
end $$;

-- Makes dead letters of messages that expired, which the caller has locked, unless the policy drops them: whether there
-- is one now. Those that were cancelled just end.
create or replace function spanmq_core.drop_or_bury(
    this spanmq_core.queue, ids bigint[], at_ timestamptz
) returns boolean
language plpgsql as $$
declare
    reason spanmq_core.reason := ('EXPIRED', 'the message expired before it was handled', null, null,
                                  null)::spanmq_core.reason;
    expired bigint[] := spanmq_core.end_cancelled(this, ids);
    drops boolean := (spanmq_core.policy_of(this.queue_id)).drop_expired;
begin
    if expired = '{}' then
        return false;
    end if;
    if drops then
        -- For state(): these are not completed.
        perform spanmq_core.note_failure(this.queue_id, expired, at_, 'cancelled', reason),
            spanmq_core.remove(this, expired, null::bigint);
    else
        perform spanmq_core.bury(this, expired, at_, reason, null::bigint);
    end if;
    delete from spanmq_core.expiry e where e.queue_id = this.queue_id and e.msg_id = any (expired);
    return not drops;
end $$;

-- Ends those of these messages, which the caller has locked, that were cancelled while a receiver held them. Returns
-- the others.
create or replace function spanmq_core.end_cancelled(this spanmq_core.queue, ids bigint[]) returns bigint[]
language plpgsql as $$
declare
    cancelled bigint[];
begin
    if not this.uses_limits or ids = '{}' then
        return ids;
    end if;
    with gone as (
        delete from spanmq_core.expiry e
            where e.queue_id = this.queue_id and e.msg_id = any (ids) and e.is_cancelled
            returning e.msg_id)
    select array_agg(g.msg_id) into cancelled from gone g;
    if cancelled is null then
        return ids;
    end if;
    perform spanmq_core.end_as_cancelled(this, cancelled);
    return spanmq_core.without(ids, cancelled);
end $$;

-- Ends these messages, which the caller has locked, as cancelled ones.
create or replace function spanmq_core.end_as_cancelled(this spanmq_core.queue, ids bigint[]) returns void
language plpgsql as $$
begin
    -- For state(): these are not completed.
    perform spanmq_core.note_failure(this.queue_id, ids, clock_timestamp(), 'cancelled',
                                     ('UNKNOWN', null, null, null, null)::spanmq_core.reason),
        spanmq_core.remove(this, ids, null::bigint);
end $$;

-- Dead-letters (or drops) up to at_most messages that have expired and that no live lease holds, also without
-- receivers. Returns their number. A message in flight keeps its row: if it returns, it has expired. Passes over those,
-- for a second, and the next call continues there: however many are in flight, the ones behind them get their turn.
-- Skips rows that other transactions have locked.
create or replace function spanmq_core.expire(this spanmq_core.queue, at_ timestamptz, at_most int) returns bigint
language plpgsql as $$
declare
    ids bigint[];
    from_at timestamptz;
    from_id bigint;
    first_at timestamptz;
    first_id bigint;
    is_second_round boolean := false;
    ended bigint[];
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
        ended := spanmq_core.lock_free(this.queue_id, ids, at_);
        perform spanmq_core.drop_or_bury(this, ended, at_);
        -- Messages that had left the queue before have only this row left.
        delete from spanmq_core.expiry e
            where e.queue_id = this.queue_id and e.msg_id = any (ids)
              and not exists (select from spanmq_core.unsettled u where u.queue_id = this.queue_id
                              and u.msg_id = e.msg_id);
        if cardinality(ids) < at_most then
            -- Round again, from the left: at once, if this call began further on and has found nothing.
            from_at := '-infinity';
            from_id := 0;
            exit when ended <> '{}' or is_second_round or first_at = '-infinity';
            is_second_round := true;
        end if;
        exit when ended <> '{}' or clock_timestamp() > at_ + interval '1 second';
    end loop;
    if (from_at, from_id) is distinct from (first_at, first_id) then
        insert into spanmq_core.upkeep (queue_id, expired_at, expired_to) values (this.queue_id, from_at, from_id)
            on conflict (queue_id) do update set expired_at = excluded.expired_at, expired_to = excluded.expired_to;
    end if;
    return cardinality(ended);
exception when lock_not_available then
    -- Another transaction has locked one of these messages: the next call tries again. The rest of maintain() goes on.
    return 0;
end $$;

-- Dead-letters messages whose lease has expired on their last attempt, which they had alone, and those that set_vt()
-- made visible after it: of the next 1,000 messages of state, and of later, from where the last call ended; also
-- without receivers. In ordered queues the claims do it: only they know which message of a group was in flight. Returns
-- their number. Looks without locks, which would hide messages that have attempts left from receivers until maintain()
-- ends: a message that was visible at at_, and is so still, has not been delivered since.
create or replace function spanmq_core.bury_exhausted(this spanmq_core.queue, at_ timestamptz) returns bigint
language plpgsql as $$
declare
    no_attempt_left spanmq_core.reason := ('UNKNOWN', 'the last attempt ended without an outcome', 'NoAttemptLeft',
                                           null, null)::spanmq_core.reason;
    last_ran_out spanmq_core.reason := ('UNKNOWN', 'the lease of the last attempt ran out', 'LeaseExpired', null,
                                        null)::spanmq_core.reason;
    least_attempts int := case when this.uses_limits then 1 else this.max_attempts end;
    first_id bigint := coalesce((select u.spent_to from spanmq_core.upkeep u where u.queue_id = this.queue_id), 0);
    next_id bigint;                -- 0 after the last one
    tried bigint[];
    late bigint[];
    ids bigint[];
    n bigint;
begin
    if least_attempts is null or (spanmq_core.policy_of(this.queue_id)).ordered then
        return 0;
    end if;
    select coalesce(array_agg(l.msg_id) filter (where l.is_visible), '{}'),
           coalesce(array_agg(l.msg_id) filter (where l.is_visible and l.attempts >= least_attempts
                                                and spanmq_core.was_alone(l.lease_id, l.alone, l.attempts)), '{}'),
           case when count(*) = 1000 then max(l.msg_id) + 1 else 0 end
        into tried, late, next_id
        from (select u.*, u.vt <= at_ and u.lease_id >= 0 and u.attempts > 0 as is_visible from spanmq_core.unsettled u
              where u.queue_id = this.queue_id and u.msg_id >= first_id
              order by u.queue_id, u.msg_id limit 1000) l;
    ids := spanmq_core.lock_visible(this.queue_id, spanmq_core.exhausted(this, late, this.max_attempts, 0, false), at_);
    perform spanmq_core.bury(this, ids, at_, last_ran_out, null::bigint);
    n := cardinality(ids);
    ids := spanmq_core.lock_visible(this.queue_id, spanmq_core.spent(this, tried, least_attempts), at_);
    perform spanmq_core.bury(this, ids, at_, no_attempt_left, null::bigint);
    if next_id <> first_id then
        insert into spanmq_core.upkeep (queue_id, spent_to) values (this.queue_id, next_id)
            on conflict (queue_id) do update set spent_to = excluded.spent_to;
    end if;
    return n + cardinality(ids);
end $$;
