-- Subscriptions: a queue that gets every message of another queue, whatever happens to it there, and without a second
-- copy of it. It shares the other's log and has a state, an archive, a policy and dead letters of its own, so all
-- functions but those that send take it for any queue. spanmq_core.log_<its id> is a view of the log that it shares.
--
-- A sender publishes to a queue and its subscriptions in one statement, which begins after the sender has drawn its
-- ids. A sender holds a lock on the sequence to the end of its transaction; a session that creates or drops a
-- subscription locks the sequence exclusively. So either the sender's transaction has ended before, or it sees the
-- change.
--
-- Lock order: the names of the queues, ascending -> bulk publishing of the queue -> the queue's row -> its sequence.
-- All to commit.

-- A queue and its subscriptions. What publishes calls this in the statement that inserts the rows of state.
create or replace function spanmq_core.queues_of(log_id int) returns table (queue_id int)
language sql stable as $$
    select log_id
    where case when spanmq_core.sees_now() then true else spanmq_core.sees_subscriptions(log_id) end
    union all
    select s.queue_id from spanmq_core.subscription s where s.log_id = queues_of.log_id
$$;

-- True, or raises 40001: in a transaction whose statements all see what was there when it began, a subscription that
-- came or went since would be missed. Each writes the row of this lock, and PostgreSQL locks no row for such a
-- transaction that was written since it began.
create or replace function spanmq_core.sees_subscriptions(log_id int) returns boolean
language plpgsql as $$
begin
    perform spanmq_core.lock_shared(log_id, 'subscriptions');
    return true;
end $$;

-- Waits until no transaction is open that has sent into the queue, and keeps senders out to the end of this one. Waits
-- in short intervals, between which senders continue: one open transaction must not stop them all. Raises MQ061 after
-- `lock_timeout`, or 10 seconds if that is off.
create or replace function spanmq_core.hold_senders(log_id int) returns spanmq_core.queue
language plpgsql as $$
declare
    this spanmq_core.queue := (select q from spanmq_core.queue q where q.queue_id = log_id);
    kept text := current_setting('lock_timeout');
    patience interval := case when kept::interval > interval '0' then kept::interval else interval '10 seconds' end;
    began_at timestamptz := clock_timestamp();
begin
    loop
        begin
            perform set_config('lock_timeout', '100ms', true);
            perform spanmq_core.lock(log_id, 'subscriptions');
            update spanmq_core.lock l set what = l.what where l.queue_id = log_id and l.what = 'subscriptions';
            select * into this from spanmq_core.queue q where q.queue_id = log_id for no key update;
            -- Changes nothing: there is no other statement that locks a sequence.
            execute format('alter sequence %s no cycle', this.ids);
            perform set_config('lock_timeout', kept, true);
            return this;
        exception when lock_not_available then
            perform spanmq_core.raise_if(clock_timestamp() - began_at > patience,
                format('a transaction that sends into queue %s does not end', this.name),
                'Nothing was changed. Look into pg_stat_activity for an old xact_start, and try again.', 'MQ061');
        end;
        perform pg_sleep(0.02);
    end loop;
end $$;

-- Creates the queue `name`, which gets every message of `queue` from now on: all messages that are sent in
-- transactions that commit after this one, by any function, with their delay, priority, group, expiry and attempts.
-- With waiting, also the messages that are not settled now. With since, also the messages that were sent since then,
-- settled or not, without their priority (-infinity: all that the log has). With since_id, also the messages with this
-- id or a higher one. Waits for the transactions that have sent and are still open (MQ061 if one does not end), and
-- keeps senders waiting until this one ends: commit it soon. An existing subscription with this name and queue is left
-- unchanged, with a notice. Raises MQ060 for a name that is another queue's and for a subscription of a subscription,
-- MQ064 if the log no longer has all of these messages, MQ002 for more than one of waiting, since and since_id, and
-- for a since_id below 1 or above the id of the next message, MQ003 outside READ COMMITTED; 42P01 if the queue does
-- not exist, 42501 without manage on all queues.
create or replace function spanmq_call.create_subscription(
    name text, queue text, waiting boolean default false, since timestamptz default null, since_id bigint default null
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    parent spanmq_core.queue := spanmq_core.find_queue(queue);
    this spanmq_core.queue;
    drawn bigint;
begin
    perform spanmq_core.check_isolation('create_subscription()');
    perform spanmq_core.raise_if(waiting::int + (since is not null)::int + (since_id is not null)::int > 1,
        'a subscription begins with what is waiting, at a time or at an id',
        'Choose one of waiting, since and since_id.');
    perform spanmq_core.raise_if(since_id < 1, format('since_id must be at least 1, got: %s', since_id),
                                 'Ids of messages begin with 1.');
    if parent.is_subscription then
        raise exception 'queue % is a subscription itself', parent.name
            using errcode = 'MQ060', hint = (
                select format('Subscribe to queue %s: it gets the same messages.', q.name)
                from spanmq_core.subscription s join spanmq_core.queue q on q.queue_id = s.log_id
                where s.queue_id = parent.queue_id);
    end if;
    perform pgmq.validate_queue_name(create_subscription.name);
    perform pgmq.format_table_name(create_subscription.name, 'q');
    perform spanmq_core.lock_name('queue', n)
        from (select n from unnest(array[lower(create_subscription.name collate "C"), parent.folded_name]) n
              order by n) names;
    -- New statements: the last holder of the locks may have created the one or dropped the other.
    parent := spanmq_core.find_queue(queue);
    select * into this from spanmq_core.queue q where q.folded_name = lower(create_subscription.name collate "C");
    if exists (select from spanmq_core.subscription s where s.queue_id = this.queue_id
               and s.log_id = parent.queue_id) then
        raise notice 'subscription "%" already exists, skipping', this.name using errcode = '42P07';
        return;
    elsif this.queue_id is not null then
        raise exception 'queue % exists and is not a subscription of queue %', this.name, parent.name
            using errcode = 'MQ060', hint = 'Choose another name.';
    end if;
    parent := spanmq_core.hold_senders(parent.queue_id);
    perform nextval('spanmq_core.subscription_number');
    this := spanmq_core.make_queue(create_subscription.name, false, parent.is_unlogged, parent);
    insert into spanmq_core.subscription (queue_id, log_id) values (this.queue_id, parent.queue_id);
    update spanmq_core.queue q set has_subscriptions = true where q.queue_id = parent.queue_id;
    drawn := coalesce(pg_sequence_last_value(this.ids), 0);
    if waiting then
        perform spanmq_core.subscribe_to_waiting(parent, this);
        return;
    elsif since is not null or since_id is not null then
        perform spanmq_core.subscribe_to_past(parent, this, since, since_id);
        -- It never got any message before the first one that it holds.
        drawn
            :=
            coalesce((select min(u.msg_id) from spanmq_core.unsettled u where u.queue_id = this.queue_id) - 1, drawn);
    end if;
    insert into spanmq_core.upkeep (queue_id, purged_to) values (this.queue_id, drawn);
end $$;

-- Gives a new subscription what is unsettled in its queue, as if it had been sent just now. Retries and leases there
-- don't matter here.
create or replace function spanmq_core.subscribe_to_waiting(
    parent spanmq_core.queue, this spanmq_core.queue
) returns void
language plpgsql as $$
begin
    -- As a sender holds it: what is settled there from now on must neither be truncated nor left out of a rewrite
    -- before these messages are seen.
    execute format('lock table spanmq_core.log_%s in row exclusive mode', parent.queue_id);
    -- Messages delivered there are new here. Those delayed there are delayed here.
    perform spanmq_core.heed_clock(this.queue_id);
    insert into spanmq_core.later (queue_id, msg_id, vt, group_hash, group_key, priority)
        select this.queue_id, u.msg_id,
               case when u.lease_id = 0 and u.attempts = 0 then greatest(u.vt, clock_timestamp())
                    else clock_timestamp() end,
               u.group_hash, u.group_key, u.priority
        from spanmq_core.unsettled u where u.queue_id = parent.queue_id;
    insert into spanmq_core.expiry (queue_id, msg_id, expires_at)
        select this.queue_id, e.msg_id, e.expires_at from spanmq_core.expiry e where e.queue_id = parent.queue_id
        and not e.is_cancelled;
end $$;

-- The subscriptions of a queue, or of all (null).
create or replace function spanmq_call.list_subscriptions(queue text default null)
returns table (subscription text, queue_name text, created_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    parent spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select q.name::text, p.name::text, q.created_at
        from spanmq_core.subscription s
        join spanmq_core.queue q on q.queue_id = s.queue_id
        join spanmq_core.queue p on p.queue_id = s.log_id
        where queue is null or s.log_id = parent.queue_id
        order by p.name, q.name;
end $$;

-- Whether another queue of the same log may still deliver this message, redrive it or, where the log is kept, replay
-- it.
create or replace function spanmq_core.is_shared(this spanmq_core.queue, id bigint) returns boolean
language plpgsql as $$
declare
    other spanmq_core.queue;
    log_id int := coalesce((select s.log_id from spanmq_core.subscription s where s.queue_id = this.queue_id),
                           this.queue_id);
begin
    if this.is_subscription and (spanmq_core.policy_of(log_id)).keep is not null then
        return true;
    end if;
    for other in select q.* from spanmq_core.queues_of(log_id) o join spanmq_core.queue q on q.queue_id = o.queue_id
        where q.queue_id <> this.queue_id loop
        -- In the order in which a message goes: it becomes a dead letter, and a batch keeps it for a replay.
        if exists (select from spanmq_core.unsettled u where u.queue_id = other.queue_id and u.msg_id = id)
           or exists (select from spanmq_core.dead_letter d where d.queue_id = other.queue_id and d.msg_id = id
                      and d.redriven_at is null)
           or spanmq_core.is_kept(other.queue_id, id, id) then
            return true;
        end if;
    end loop;
    return false;
end $$;
