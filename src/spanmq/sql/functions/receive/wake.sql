-- Waking receivers: docs/internals/wake-up.md says when, why, and what is left to polls. A receiver that found nothing announces that it waits
-- (await_messages) and listens; a send notifies its channel only while a receiver waits, and at most once in 10 ms.
--
-- The time until which a receiver waits, and the time when the queue was last woken, are in two sequences, spanmq_core.waiting_<queue_id> and
-- spanmq_core.woken_<queue_id>, in milliseconds since 1970: read and set without a lasting lock, with effect at once and whether or not the
-- transaction commits. queue.waiting and queue.woken name them; they are null until a receiver has waited, and then a send has no cost.

-- Announces that a receiver waits for messages of this queue for that many seconds (at most 60), and returns the channel to listen to. Call it again
-- before they have passed; listen before the call, and poll for messages after it. Takes effect at once, not at the commit. Raises MQ002 for seconds
-- that are null or out of range.
create or replace function spanmq_call.await_messages(queue text, seconds double precision default 3) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    perform spanmq_core.raise_if(seconds is null or not (seconds > 0 and seconds <= 60),
        format('seconds must be more than 0 and at most 60, got: %L', seconds), 'Call it again before they have passed.');
    if this.waiting is null then
        this.waiting := spanmq_core.make_wake_clocks(this);
    end if;
    -- A longer wait has been announced already: a short one must not end it. A time further ahead than the limit was
    -- set before the clock was set back.
    if (pg_sequence_last_value(this.waiting) between now_ms + seconds * 1000 and now_ms + 60000) is not true then
        perform setval(this.waiting, now_ms + ceil(seconds * 1000)::bigint);
    end if;
    return spanmq_core.channel_of(this.folded_name);
end $$;

-- Seconds until a message of the queue becomes visible by itself, because its delay, its backoff or the lease on it
-- ends, or until a rate limit lets the next one through; null: nothing of that kind is known. A receiver asks this
-- before it polls, not after: messages that become due between the two are found by the poll. Messages that become due
-- sooner, and are not known yet, are announced (is_foreseen).
create or replace function spanmq_call.look_ahead(queue text) returns double precision
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    due_at timestamptz := (select h.vt from spanmq_core.held h where h.queue_id + 0 = this.queue_id and h.vt > at_ order by h.queue_id + 0, h.vt limit 1);
    policy spanmq_core.policy;
begin
    if not this.has_plain_policy then
        policy := spanmq_core.policy_of(this.queue_id);
    end if;
    return least(extract(epoch from due_at - at_), spanmq_core.until_token(this.queue_id, policy.rate_limit, policy.rate_burst));
end $$;

-- The same for many queues at once, in their order: for one process in which many wait. For a queue that does not exist, or on which the caller has no right, the
-- result is null; the next receive raises the error.
create or replace function spanmq.look_ahead(queues text[]) returns double precision[]
language plpgsql as $$
declare
    queue pg_catalog.text;
    seconds double precision;
    found_all double precision[] := '{}';
begin
    foreach queue in array coalesce(queues, '{}') loop
        begin
            select * into seconds from spanmq.look_ahead(queue);
        exception when undefined_table or insufficient_privilege or raise_exception then
            seconds := null;
        end;
        found_all := pg_catalog.array_append(found_all, seconds);
    end loop;
    return found_all;
end $$;

-- Whether a waiting receiver finds out by itself when a message becomes visible: it polls again before that, and looks
-- ahead then.
create or replace function spanmq_core.is_foreseen(visible_at timestamptz) returns boolean
language sql volatile as $$ select coalesce(visible_at > clock_timestamp() + interval '4 seconds', false) $$;

create or replace function spanmq_core.channel_of(queue_name text) returns text
language sql immutable as $$ select 'spanmq.q_' || lower(queue_name) $$;

-- The sequences of a queue without earlier waits.
create or replace function spanmq_core.make_wake_clocks(this spanmq_core.queue) returns regclass
language plpgsql as $$
declare
    made regclass;
    last regclass;
begin
    perform spanmq_core.lock(0, 'queue ' || lower(this.name::text));
    -- A new statement: the last holder of the lock may have created them, or dropped the queue.
    select q.waiting into made from spanmq_core.queue q where q.queue_id = this.queue_id;
    if not found then
        perform spanmq_core.raise_not_found(this.name);
    elsif made is null then
        execute format('create sequence spanmq_core.waiting_%s minvalue 0', this.queue_id);
        execute format('create sequence spanmq_core.woken_%s minvalue 0', this.queue_id);
        made := format('spanmq_core.waiting_%s', this.queue_id)::regclass;
        last := format('spanmq_core.woken_%s', this.queue_id)::regclass;
        perform setval(last, 0);
        update spanmq_core.queue q set waiting = made, woken = last where q.queue_id = this.queue_id;
    end if;
    return made;
end $$;

-- Notifies at the commit, if a receiver waits and no session has notified a moment ago. Times in the future (the clock
-- was set back) neither silence a queue nor make it notify indefinitely.
create or replace function spanmq_core.wake(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    if spanmq_core.is_awaited(this, now_ms) and pg_sequence_last_value(this.woken) not between now_ms - 10 and now_ms then
        perform setval(this.woken, now_ms);
        perform spanmq_core.notify_channel(spanmq_core.channel_of(this.folded_name));
    end if;
end $$;

create or replace function spanmq_core.is_awaited(this spanmq_core.queue, now_ms bigint) returns boolean
language plpgsql as $$
begin
    return this.waiting is not null and (pg_sequence_last_value(this.waiting) between now_ms and now_ms + 60000) is true;
end $$;

-- For transactions that take messages out of a queue that orders or limits: other messages may have waited for them.
-- Wakes waiting receivers, if there are any.
create or replace function spanmq_core.wake_behind(this spanmq_core.queue, runs spanmq_core.run[]) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    policy spanmq_core.policy;
    bound spanmq_core.bound;
    candidate record;
begin
    if this.has_plain_policy or runs = '{}' or not spanmq_core.is_awaited(this, (extract(epoch from at_) * 1000)::bigint) then
        return;
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    bound := spanmq_core.bound_of(this.queue_id);
    -- Room for one more in flight is room for any; else only for the rest of a group.
    if policy.max_in_flight is not null or exists (select from unnest(runs) r where r.group_hash is null) then
        if exists (select from spanmq_core.fresh f where f.queue_id = this.queue_id and f.lo >= bound.fresh_from order by f.queue_id, f.lo limit 1)
           or exists (select from spanmq_core.held h where h.queue_id + 0 = this.queue_id and h.vt >= bound.due_from and h.vt <= at_) then
            perform spanmq_core.wake(this);
        end if;
        return;
    end if;
    for candidate in
        select r.group_hash as hash, max(r.lo + r.n - 1) as last_id from unnest(runs) r group by r.group_hash
    loop
        -- A run that is acked message by message frees the group with the last one. Only messages leased behind these
        -- count: of two settlements of one run, neither of which sees the other, that of its end decides.
        continue when policy.ordered and exists (
            select from spanmq_core.held h
            where h.queue_id + 0 = this.queue_id and h.group_hash = candidate.hash and h.group_hash is not null and h.vt > at_
              and h.lease_id <> 0 and h.lo + h.n - 1 > candidate.last_id and spanmq_core.count_left(h) > 0);
        if exists (select from spanmq_core.fresh f
                   where f.queue_id + 0 = this.queue_id and f.group_hash = candidate.hash and f.group_hash is not null and f.lo >= bound.fresh_from)
           or exists (select from spanmq_core.held h
                      where h.queue_id + 0 = this.queue_id and h.group_hash = candidate.hash and h.group_hash is not null
                        and h.vt >= bound.due_from and h.vt <= at_ and h.lease_id = 0) then
            perform spanmq_core.wake(this);
            return;
        end if;
    end loop;
end $$;

-- Announces sent messages, to subscribers too: PGMQ's notification, if enabled, and spanmq's own for waiting receivers,
-- unless the messages become visible much later.
create or replace function spanmq_core.announce(this spanmq_core.queue, visible_at timestamptz) returns void
language plpgsql as $$
begin
    if this.notify_ms is not null then
        perform spanmq_core.notify(this);
    end if;
    if this.waiting is not null and not spanmq_core.is_foreseen(visible_at) then
        perform spanmq_core.wake(this);
    end if;
    if this.has_subscriptions then
        perform spanmq_core.announce(q, visible_at)
            from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.queue_id where s.log_id = this.queue_id;
    end if;
end $$;
