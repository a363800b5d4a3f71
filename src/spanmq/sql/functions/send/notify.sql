-- Notifications at a send: channel pgmq.q_<name>.INSERT, empty payload, at most one each throttle interval and queue.
-- The time when a queue last notified is stored in a sequence, spanmq_core.notified_<queue_id> (milliseconds since
-- 1970): it is read and set without locks, survives a crash, and no sender waits for another. Two senders at the same
-- instant may both notify.

-- Notifies a channel at the commit, unless PostgreSQL's queue of notifications is half full: it is one for the whole
-- server, every role can fill it, and a commit whose notification does not fit into it fails. All listeners poll, too.
create or replace function spanmq_core.notify_channel(channel text, payload text default '') returns void
language plpgsql as $$
begin
    if pg_notification_queue_usage() < 0.5 then
        perform pg_notify(channel, payload);
    end if;
end $$;

create or replace function spanmq_core.notify(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    clock regclass := format('spanmq_core.notified_%s', this.queue_id)::regclass;
    now_ms bigint := extract(epoch from clock_timestamp()) * 1000;
    last_ms bigint := pg_sequence_last_value(clock);
begin
    -- A time in the future (the clock was set back) does not silence the queue.
    if last_ms is null or now_ms - last_ms >= this.notify_ms or last_ms > now_ms then
        perform setval(clock, now_ms);
        perform spanmq_core.notify_channel('pgmq.q_' || this.folded_name || '.INSERT');
    end if;
end $$;

create or replace function spanmq_core.check_throttle(throttle_interval_ms int, text_of_negative text) returns void
language plpgsql immutable as $$
begin
    if throttle_interval_ms is null or throttle_interval_ms < 0 then
        raise exception '%', text_of_negative
            using errcode = 'P0001', constraint = 'MQ002',
            detail = format('throttle_interval_ms is %s.', throttle_interval_ms), hint = '0: each insert notifies.';
    end if;
end $$;

-- The queue of that name for the notify functions, whose error for an unknown queue has PGMQ's text.
create or replace function spanmq_core.find_queue_to_notify(
    queue_name text, text_of_unknown text
) returns spanmq_core.queue
language plpgsql stable as $$
begin
    if not exists (select from spanmq_core.queue q where q.folded_name = lower(queue_name collate "C")) then
        perform pgmq.format_table_name(queue_name, 'q');
        raise exception '%', format(text_of_unknown, queue_name)
            using errcode = 'P0001', constraint = '42P01', hint = 'pgmq.list_queues() lists the queues.';
    end if;
    return spanmq_core.find_queue(queue_name);
end $$;

-- Notifies channel pgmq.q_<name>.INSERT of sends from now on, at most once in throttle_interval_ms.
create or replace function spanmq_call.enable_notify_insert(
    queue_name text, throttle_interval_ms integer default 250
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue;
begin
    perform spanmq_core.check_throttle(throttle_interval_ms, 'throttle_interval_ms must be non-negative');
    this := spanmq_core.find_queue_to_notify(queue_name,
                                             'Queue "%s" does not exist. Create it first using pgmq.create()');
    perform spanmq_core.lock_name('queue', lower(queue_name collate "C"));
    -- A new statement: the last holder of the lock may have dropped it.
    this := spanmq_core.find_queue(queue_name);
    -- Created before the queue's row refers to it: a sender that reads notify_ms finds the sequence. An existing one
    -- stays, because a sender may be using it.
    if to_regclass(format('spanmq_core.notified_%s', this.queue_id)) is null then
        execute format('create sequence spanmq_core.notified_%s minvalue 0', this.queue_id);
        perform spanmq_core.close_relation(format('spanmq_core.notified_%s', this.queue_id)::regclass, '{}');
    end if;
    perform setval(format('spanmq_core.notified_%s', this.queue_id)::regclass, 0);
    update spanmq_core.queue q set notify_ms = throttle_interval_ms where q.queue_id = this.queue_id;
end $$;

-- Switches off the notifications of sends.
create or replace function spanmq_call.disable_notify_insert(queue_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- The sequence stays: a sender that read the queue a moment ago may look at it.
    update spanmq_core.queue q set notify_ms = null where q.folded_name = lower(queue_name collate "C");
    if not found then
        -- As in PGMQ, no error: what tidies up may come after drop_queue.
        raise notice 'relation "pgmq.%" does not exist, skipping', pgmq.format_table_name(queue_name, 'q')
            using errcode = '42P01';
    end if;
end $$;

-- Changes the minimum interval between notifications of a queue.
create or replace function spanmq_call.update_notify_insert(queue_name text, throttle_interval_ms integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue;
begin
    perform spanmq_core.check_throttle(throttle_interval_ms,
                                       format('throttle_interval_ms must be non-negative, got: %s',
                                              throttle_interval_ms));
    this := spanmq_core.find_queue_to_notify(queue_name,
                                             'Queue "%s" does not exist. Create the queue first using pgmq.create()');
    perform spanmq_core.raise_as_pgmq(this.notify_ms is null, 'MQ002',
        format('Queue "%s" does not have notify_insert enabled. Enable it first using pgmq.enable_notify_insert()',
               queue_name),
        'pgmq.list_notify_insert_throttles() shows which have.');
    update spanmq_core.queue q set notify_ms = throttle_interval_ms where q.queue_id = this.queue_id;
    perform setval(format('spanmq_core.notified_%s', this.queue_id)::regclass, 0);
end $$;

create or replace function spanmq_core.last_notified_at(queue_id int) returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return to_timestamp(coalesce(pg_sequence_last_value(format('spanmq_core.notified_%s', queue_id)::regclass), 0) /
                        1000.0);
end $$;

-- For the queues into which the caller may look.
create or replace function pgmq.list_notify_insert_throttles()
returns table (queue_name text, throttle_interval_ms integer, last_notified_at timestamptz)
language sql stable as $$
    select t.* from spanmq_call.names_for('look') n cross join lateral spanmq.list_throttles(n) t order by t.queue_name
$$;

-- The throttle of a queue, no row if it does not notify.
create or replace function spanmq_call.list_throttles(queue text)
returns table (queue_name text, throttle_interval_ms integer, last_notified_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    if this.notify_ms is not null then
        return query select this.name::text, this.notify_ms, spanmq_core.last_notified_at(this.queue_id);
    end if;
end $$;

-- PGMQ's trigger function. Kept for what refers to it by name; nothing here fires it.
create or replace function pgmq.notify_queue_listeners() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return new;
end $$;
