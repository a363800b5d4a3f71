-- Waking receivers: docs/internals/wake-up.md says when, why, and what is left to polls.
--
-- A process that waits for messages, of any number of queues, registers as a listener (await_messages). It gets a bell,
-- one of 62 of the database, listens to the bell's channel, and polls for all its queues at once (poll), which
-- announces that it waits. A send rings one bell of the queue at which a process waits: it notifies the bell's channel
-- with the id of the queue. A process that was woken and leaves messages to others wakes the next one (pass_on).
--
-- The state of a bell is a sequence, spanmq_core.bell_<n>: the ms since 1970 when its process last announced that it
-- waits, shifted by 20 bits, and in these bits the ms when it was last rung; 0: its process is busy. It is read and set
-- without a lasting lock, with effect at once and whether or not the transaction commits; unlogged, for after a crash
-- no process waits.

-- Registers a process that waits for messages of these queues, for 90 seconds; a later call renews this. `listener` is
-- a random uuid of the process, which proves that a caller may poll for these queues. Returns the queues on which the
-- caller has the right, with their ids, whether they are ordered, and the channel to listen to. The channel is null if
-- the process does not listen (has_channel false), or if too many others do; then only polls find a message. Half of
-- the 62 channels are for any process. Each queue has four of the others. Calls in one transaction add their queues.
-- Raises MQ002 for a listener that is null.
create or replace function spanmq_call.await_messages(queues text[], listener uuid, has_channel boolean default true)
returns table (queue text, queue_id int, is_ordered boolean, channel text)
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '20ms' as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
    known_ids int[] := array(select q.queue_id from unnest(queues) n join spanmq_core.queue q
                             on q.folded_name = lower(n collate "C"));
    this spanmq_core.listener;
    bit bigint;
begin
    perform spanmq_core.raise_if(listener is null, 'listener cannot be NULL',
                                 'Pass gen_random_uuid(), the same one at each call.');
    update spanmq_core.listener l
        set queue_ids = case when l.registered_in = pg_current_xact_id() then l.queue_ids || known_ids
        else known_ids end,
            registered_in = pg_current_xact_id(), expires_at = at_ + interval '90 seconds'
        where l.listener = await_messages.listener and l.expires_at > at_ returning * into this;
    if not found then
        this := spanmq_core.new_listener(listener, known_ids, coalesce(has_channel, true));
    elsif this.bell is null and has_channel then
        this := spanmq_core.take_bell(this);
    end if;
    if this.bell is not null then
        bit := 1::bigint << this.bell;
        -- A queue whose row another transaction has locked gets the bell at the next call.
        update spanmq_core.queue q set bells = q.bells | bit
            where q.bells & bit = 0 and q.queue_id = any (array(
                select c.queue_id from unnest(known_ids) i join spanmq_core.queue c on c.queue_id = i
                    where c.bells & bit = 0 for no key update of c skip locked));
    end if;
    return query
        select n, q.queue_id, coalesce(p.ordered, false), this.channel
        from unnest(queues) n join spanmq_core.queue q on q.folded_name = lower(n collate "C")
        left join spanmq_core.policy p on p.queue_id = q.queue_id;
end $$;

create or replace function spanmq_core.new_listener(
    key uuid, ids int[], has_channel boolean
) returns spanmq_core.listener
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    this spanmq_core.listener;
begin
    delete from spanmq_core.listener l
        where l.ctid = any (array(select o.ctid from spanmq_core.listener o where o.expires_at <= at_
                                  for update skip locked));
    insert into spanmq_core.listener (listener, queue_ids, registered_in, expires_at)
        values (key, ids, pg_current_xact_id(), at_ + interval '90 seconds')
        on conflict on constraint listener_pkey do update
            set queue_ids = excluded.queue_ids, registered_in = excluded.registered_in, expires_at = excluded.expires_at
        returning * into this;
    return case when has_channel then spanmq_core.take_bell(this) else this end;
end $$;

-- Whether one more process that waits for these queues may have a bell: half of the bells are for any; of the other
-- half a queue has four. So processes that wait for one queue leave bells to those that wait for others.
create or replace function spanmq_core.has_share(ids int[]) returns boolean
language sql volatile as $$
    with taken as (select l.queue_ids from spanmq_core.listener l where l.bell is not null)
    select (select count(*) from taken) < 31
        or exists (select from unnest(ids) i
                   where (select count(*) from taken t where i = any (t.queue_ids)) < 4)
$$;

-- Gives a listener a bell and a new channel, if one is free, which others then no longer have.
create or replace function spanmq_core.take_bell(this spanmq_core.listener) returns spanmq_core.listener
language plpgsql as $$
declare
    -- Any: two processes that start at the same time take the same one rarely.
    free int := (select n from generate_series(0, 61) n
                 where not exists (select from spanmq_core.listener l where l.bell = n) order by random() limit 1);
    bit bigint := 1::bigint << free;
begin
    if free is null or not spanmq_core.has_share(this.queue_ids) then
        return this;
    end if;
    begin
        update spanmq_core.listener l set bell = free, channel = 'spanmq_' || replace(gen_random_uuid()::text, '-', '')
            where l.listener = this.listener returning * into this;
    exception when unique_violation or lock_not_available then
        return this;  -- another process has just taken it: the next call tries again
    end;
    perform spanmq_core.silence(free);
    -- Its last owner may have waited for other queues.
    update spanmq_core.queue q set bells = q.bells & ~bit
        where q.bells & bit <> 0 and q.queue_id = any (array(
            select c.queue_id from spanmq_core.queue c where c.bells & bit <> 0 for no key update skip locked));
    return this;
end $$;

-- Polls all queues of a listener. It also announces that the listener waits, unless `waits` is false: a process
-- announces itself when it listens. ready: the ids of the queues that have a visible message. due_in: the seconds
-- until the next message becomes visible, or a rate limit permits it; null: no such time is known. Messages that
-- become due within four seconds, and are not known yet, wake the listener (is_foreseen). A queue that was dropped
-- counts as one with messages, so that a receive raises the error. `ready` is null for a listener that is not
-- registered, or no longer.
create or replace function spanmq.poll(
    listener uuid, waits boolean default true
) returns table (ready int[], due_in double precision)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.listener := spanmq_core.find_listener(listener);
begin
    if this.listener is null then
        return query select null::int[], null::double precision;
        return;
    end if;
    -- First: what is sent after the poll rings.
    if waits and this.bell is not null then
        perform spanmq_core.announce_wait(this.bell);
    end if;
    return query
        select coalesce(array_agg(s.queue_id) filter (where s.is_ready), '{}'), min(s.due_in)
        from spanmq_core.states_of(this.queue_ids) s;
end $$;

-- For each of these queues that has a visible message, wakes another listener. Returns the ids of those queues. A
-- process that was woken calls this if it leaves messages to others. With is_busy the process is not woken again until
-- it polls.
create or replace function spanmq.pass_on(listener uuid, queue_ids int[], is_busy boolean default false) returns int[]
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.listener := spanmq_core.find_listener(listener);
    ready int[];
begin
    if this.bell is not null and is_busy then
        perform spanmq_core.silence(this.bell);
    end if;
    ready := array(select s.queue_id
                   from spanmq_core.states_of(array(select i from unnest(pass_on.queue_ids) i
                                                    where i = any (this.queue_ids))) s
                   where s.is_ready);
    perform spanmq_core.ring(q.queue_id, q.bells, this.bell) from spanmq_core.queue q where q.queue_id = any (ready)
        and q.bells <> 0;
    return ready;
end $$;

create or replace function spanmq_core.find_listener(key uuid) returns spanmq_core.listener
language sql stable as $$ select l from spanmq_core.listener l where l.listener = key
and l.expires_at > clock_timestamp() $$;

-- Whether these queues have a visible message, and in how many seconds the next one becomes visible; three index probes
-- for each queue.
create or replace function spanmq_core.states_of(
    ids int[]
) returns table (queue_id int, is_ready boolean, due_in double precision)
language plpgsql :pinned set enable_sort = off as $$
#variable_conflict use_column
declare
    at_ timestamptz := clock_timestamp();
begin
    return query
        select s.queue_id, (s.is_fresh or s.vt <= at_) and s.token_in is null,
        least(s.token_in, case when s.vt > at_ then extract(epoch from s.vt - at_) end,
              case when s.is_fresh or s.vt <= at_ then s.open_in end)
        from (
            select u.queue_id, q.queue_id is null or b.queue_id is null
                       or exists (select from spanmq_core.state f where f.queue_id = u.queue_id
                                  and f.msg_id >= b.from_id and f.vt <= at_) as is_fresh,
                   least((select h.vt from spanmq_core.later h where h.queue_id + 0 = u.queue_id and h.vt >= b.due_from
                          order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 1),
                         (select min(f.vt) from (select f.vt from spanmq_core.state f
                                                 where f.queue_id = u.queue_id and f.msg_id >= b.from_id
                                                 order by f.queue_id, f.msg_id limit 1000) f)) as vt,
                   p.token_in, p.open_in
            from unnest(ids) u (queue_id) left join spanmq_core.queue q on q.queue_id = u.queue_id left join lateral (
                select b.queue_id, b.from_id, b.due_from from spanmq_core.bound b where b.queue_id = u.queue_id
                order by b.queue_id desc, b.number desc limit 1) b on true
            left join lateral (
                select spanmq_core.until_token(p.queue_id, p.rate_limit, p.rate_burst) as token_in,
                       case when p.rate_limit_per_group is not null then spanmq_core.until_open(p) end as open_in
                from spanmq_core.policy p where p.queue_id = u.queue_id offset 0) p on true) s;
end $$;

-- Returns the seconds until a message of the queue becomes visible by itself, because its delay, its backoff or its
-- lease ends, or until a rate limit permits the next one. Null: no such time is known. A receiver must call this
-- before it polls, not after: the poll then finds messages that become due between the two calls. Messages that become
-- due sooner, and are not known yet, are announced (is_foreseen).
create or replace function spanmq_call.look_ahead(queue text) returns double precision
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    at_ timestamptz := clock_timestamp();
    -- Of state, what is leased is in front.
    due_at timestamptz := least(
        (select h.vt from spanmq_core.later h where h.queue_id + 0 = this.queue_id and h.vt > at_
         order by h.queue_id + 0, h.vt, h.msg_id + 0 limit 1),
        (select min(f.vt) from (select f.vt from spanmq_core.state f
                                where f.queue_id = this.queue_id
                                  and f.msg_id >= (spanmq_core.bound_of(this.queue_id)).from_id
                                order by f.queue_id, f.msg_id limit 1000) f
         where f.vt > at_));
    policy spanmq_core.policy;
begin
    if not this.has_plain_policy then
        policy := spanmq_core.policy_of(this.queue_id);
    end if;
    return least(extract(epoch from due_at - at_),
                 spanmq_core.until_token(this.queue_id, policy.rate_limit, policy.rate_burst),
                 case when policy.rate_limit_per_group is not null then spanmq_core.until_open(policy) end);
end $$;

-- The same for many queues at once, in their order, for a process with many waiting receivers. For a queue that does
-- not exist, or on which the caller has no right, the result is null; the next receive raises the error.
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

create or replace function spanmq_core.announce_wait(bell int) returns void
language plpgsql as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    -- As if rung a minute before, longer than any sender's time is behind: see ring().
    perform setval(('spanmq_core.bell_' || bell)::regclass, now_ms << 20 | ((now_ms - 60000) & 1048575));
end $$;

create or replace function spanmq_core.silence(bell int) returns void
language plpgsql as $$
begin
    perform setval(('spanmq_core.bell_' || bell)::regclass, 0);
end $$;

-- Wakes one process that waits for messages of this queue, at the commit, beginning the search at random: not one that
-- was rung less than 50 ms before. Returns whether one was found. A ring does not prolong an announcement: a dead
-- process is not rung for longer than 30 seconds. An announcement may be later than `now_ms`: its process made it after
-- this transaction had read the clock. More than 30 seconds later, the clock was set back: that counts as past.
create or replace function spanmq_core.ring(this_queue int, bells bigint, but int default null) returns boolean
language plpgsql as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    first int := floor(random() * 62);
    -- Bit 0 is bell `first`.
    left_over bigint := ((bells >> first) | (bells << (62 - first))) & 4611686018427387903;
    lowest bigint;
    number int;
    state bigint;
    channel text;
begin
    while left_over <> 0 loop
        lowest := left_over & -left_over;
        left_over := left_over # lowest;
        number := (first + bit_count((lowest - 1)::bit(64))::int) % 62;
        continue when number = but;
        state := pg_sequence_last_value(('spanmq_core.bell_' || number)::regclass);
        if abs((state >> 20) - now_ms) <= 30000 and (now_ms - state) & 1048575 >= 50 then
            channel := (select l.channel from spanmq_core.listener l where l.bell = number);
            if channel is not null then
                perform setval(('spanmq_core.bell_' || number)::regclass, (state >> 20 << 20) | (now_ms & 1048575));
                perform spanmq_core.notify_channel(channel, this_queue::text);
                return true;
            end if;
        end if;
    end loop;
    return false;
end $$;

-- Wakes a process that waits for messages of this queue: at most once in 4 ms for a queue, over all senders, else one
-- that sends without a pause wakes all processes.
create or replace function spanmq_core.wake(this_queue int, bells bigint) returns void
language plpgsql as $$
declare
    now_ms bigint;
    clock regclass;
    last bigint;
begin
    if bells = 0 then
        return;
    end if;
    now_ms := extract(epoch from clock_timestamp()) * 1000;
    clock := ('spanmq_core.woken_' || (this_queue & 15))::regclass;
    last := pg_sequence_last_value(clock);
    -- The queue's id, and the lowest 32 bits of the time.
    if (last >> 32 = this_queue and (now_ms - last) & 4294967295 < 4) is not true
        and spanmq_core.ring(this_queue, bells) then
        perform setval(clock, (this_queue::bigint << 32) | (now_ms & 4294967295));
    end if;
end $$;

-- Whether a process waits for messages of this queue, by the times of ring().
create or replace function spanmq_core.is_awaited(this spanmq_core.queue) returns boolean
language plpgsql as $$
declare
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
begin
    return this.bells <> 0 and exists (
        select from generate_series(0, 61) n
        where this.bells >> n & 1 = 1
        and abs((pg_sequence_last_value(('spanmq_core.bell_' || n)::regclass) >> 20) - now_ms) <= 30000);
end $$;

-- For transactions that are about to take messages out of a queue that orders or limits: other messages may have waited
-- for them. Wakes waiting receivers, if there are any. fence: as in lock_ids().
create or replace function spanmq_core.wake_behind(this spanmq_core.queue, ids bigint[], fence bigint) returns void
language plpgsql as $$
declare
    at_ timestamptz := clock_timestamp();
    policy spanmq_core.policy;
    bound spanmq_core.bound;
    candidate record;
begin
    if this.has_plain_policy or this.bells = 0 or not spanmq_core.is_awaited(this) then
        return;
    end if;
    ids := array(select u.msg_id from spanmq_core.unsettled u
                 where u.queue_id = this.queue_id and u.msg_id = any (ids)
                   and (u.lease_id = fence or fence is null and u.lease_id >= 0));
    if ids = '{}' then
        return;
    end if;
    policy := spanmq_core.policy_of(this.queue_id);
    bound := spanmq_core.bound_of(this.queue_id);
    -- Room for one more in flight is room for any; else only for the rest of a group.
    if policy.max_in_flight is not null or exists (
            select from spanmq_core.unsettled u
            where u.queue_id = this.queue_id and u.msg_id = any (ids) and u.group_hash is null) then
        if exists (select from spanmq_core.state f where f.queue_id = this.queue_id and f.msg_id >= bound.from_id
                   order by f.queue_id, f.msg_id limit 1)
           or exists (select from spanmq_core.later h where h.queue_id + 0 = this.queue_id and h.vt >= bound.due_from
                      and h.vt <= at_) then
            perform spanmq_core.wake(this.queue_id, this.bells);
        end if;
        return;
    end if;
    for candidate in
        select u.group_hash as hash, max(u.msg_id) as last_id from spanmq_core.unsettled u
        where u.queue_id = this.queue_id and u.msg_id = any (ids) group by u.group_hash
    loop
        -- A lease that is acked message by message frees the group with the last one. Only messages leased behind these
        -- count: of two settlements of one lease, neither of which sees the other, that of the last message decides.
        continue when policy.ordered and exists (
            select from spanmq_core.later h
            where h.queue_id + 0 = this.queue_id and h.group_hash = candidate.hash and h.group_hash is not null
            and h.vt > at_ and h.lease_id <> 0 and h.msg_id > candidate.last_id);
        if exists (select from spanmq_core.state f
                   where f.queue_id + 0 = this.queue_id and f.group_hash = candidate.hash and f.group_hash is not null
                   and f.msg_id >= bound.from_id)
           or exists (select from spanmq_core.later h
                      where h.queue_id + 0 = this.queue_id and h.group_hash = candidate.hash
                      and h.group_hash is not null
                        and h.vt >= bound.due_from and h.vt <= at_ and h.lease_id = 0) then
            perform spanmq_core.wake(this.queue_id, this.bells);
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
    if this.bells <> 0 and not spanmq_core.is_foreseen(visible_at) then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
    if this.has_subscriptions then
        perform spanmq_core.announce(q, visible_at)
            from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.queue_id
            where s.log_id = this.queue_id;
    end if;
end $$;
