-- Signals: a message waits for one by its name, without a place in the queue, and is sent when the signal comes, or
-- when its time is over.
--
-- A name in a queue has one row. A wait and a signal insert it, or lock the one that is there; maintain(), which sends
-- what has waited long enough, locks it too. So what happens to a name at the same time happens one after the other,
-- and the later transaction sees what the earlier one committed: a signal finds the wait, or the wait finds the signal.

-- Sends a message into the queue when the signal of this name comes, or `timeout` seconds from now. If the signal came
-- before and is kept, the message is sent at once. Its header x-spanmq-signal has the name and either the body of the
-- signal or timed_out. waiter_queue, waiter_id and waiter_lease name the leased message whose handler waits: explain()
-- of it shows the wait. Returns the id of a message that was sent at once, else null. Raises MQ067 if another message
-- waits for the name, MQ002 for a name that is empty or has over 255 bytes, and what send() raises. Waits for
-- transactions that have used the name.
create or replace function spanmq_call.wait_for_signal(
    queue text, name text, message jsonb, timeout double precision, headers jsonb default null,
    waiter_queue text default null, waiter_id bigint default null, waiter_lease bigint default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    wait spanmq_core.signal;
    kept spanmq_core.signal;
begin
    perform spanmq_core.raise_if(jsonb_typeof(headers) not in ('object', 'null'),
        'the headers of a message must be a JSON object', 'Such as {"x-pgmq-group": "a"}.');
    perform spanmq_core.check_bodies(this, array[message]);
    wait := (this.queue_id, name, true, message, case when jsonb_typeof(headers) = 'object' then headers end,
             clock_timestamp(), spanmq_core.after(timeout, 'timeout'),
             null, null);
    -- The lease proves that the caller has the message.
    select u.queue_id, u.msg_id into wait.of_queue_id, wait.of_msg_id
        from spanmq_core.queue q join spanmq_core.unsettled u on u.queue_id = q.queue_id
        where q.folded_name = lower(waiter_queue collate "C") and u.msg_id = waiter_id and u.lease_id = waiter_lease;
    kept := spanmq_core.enter_signal(this, wait);
    if kept.name is null then
        return null;
    elsif kept.is_wait then
        raise exception 'a message of queue % waits for the signal "%" already', this.name, name
            using errcode = 'MQ067', hint = 'Use a name of its own for each wait, such as approved:42.';
    elsif kept.until <= wait.made_at then
        -- Forgotten: the row becomes that of the wait.
        update spanmq_core.signal s
            set (is_wait, body, headers, made_at, until, of_queue_id, of_msg_id)
                = (true, wait.body, wait.headers, wait.made_at, wait.until, wait.of_queue_id, wait.of_msg_id)
            where s.queue_id = this.queue_id and s.name = wait.name;
        return null;
    end if;
    return spanmq_core.end_wait(this, wait, jsonb_build_object('body', kept.body));
end $$;

-- Sends the message that waits for the signal of this name, with the body in its header x-spanmq-signal, and returns
-- 'released'. If no message waits, the signal is kept for the next wait, for keep_for seconds, and the result is
-- 'kept', or 'replaced' if it takes the place of a kept one. Raises MQ002 for a name that is empty or has over 255
-- bytes and a body of over 64 KB, and what send() raises. Waits for transactions that have used the name. With
-- timed_out it ends the wait as its timeout would, without a body, and is never kept: 'unknown' if no message waits.
create or replace function spanmq_call.signal(
    queue text, name text, body jsonb default null, keep_for double precision default 86400,
    timed_out boolean default false
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    at_ timestamptz := clock_timestamp();
    kept_until timestamptz := spanmq_core.after(keep_for, 'keep_for');
    known spanmq_core.signal;
begin
    perform spanmq_core.raise_if(octet_length(body::text) > 65536,
        format('the body of a signal must have at most 64 KB, got: %s bytes', octet_length(body::text)),
        'Store it elsewhere, and send its key.');
    if timed_out then
        perform spanmq_core.hold_queue(this);
        select * into known from spanmq_core.signal s
            where s.queue_id = this.queue_id and s.name = signal.name and s.is_wait for update;
        if not found then
            return 'unknown';
        end if;
        perform spanmq_core.end_wait(this, known, '{"timed_out": true}');
        return 'released';
    end if;
    known := spanmq_core.enter_signal(this, (this.queue_id, name, false, body, null, at_, kept_until, null, null));
    if known.is_wait then
        perform spanmq_core.end_wait(this, known, jsonb_build_object('body', body));
        return 'released';
    elsif known.name is not null then
        update spanmq_core.signal s set (body, made_at, until) = (signal.body, at_, kept_until)
            where s.queue_id = this.queue_id and s.name = known.name;
    end if;
    return case when known.until > at_ then 'replaced' else 'kept' end;
end $$;

-- Inserts a row of a name, and returns null; or, if there is one, locks that and returns it.
create or replace function spanmq_core.enter_signal(this spanmq_core.queue, entry spanmq_core.signal)
returns spanmq_core.signal
language plpgsql as $$
declare
    known spanmq_core.signal;
begin
    perform spanmq_core.raise_if((octet_length(entry.name) between 1 and 255) is not true,
        format('the name of a signal must have 1 to 255 bytes, got: %s', coalesce(left(entry.name, 100), 'NULL')),
        'Such as approved:42.');
    perform spanmq_core.hold_queue(this);
    for attempt in 1 .. 100 loop
        insert into spanmq_core.signal select entry.* on conflict do nothing;
        exit when found;
        select * into known from spanmq_core.signal s where s.queue_id = entry.queue_id and s.name = entry.name
            for update;
        exit when found;
        -- Another transaction deleted it between the two statements.
    end loop;
    return known;
end $$;

-- Sends the message of a wait, and removes the row of its name. signal: what the header x-spanmq-signal tells of it.
create or replace function spanmq_core.end_wait(this spanmq_core.queue, wait spanmq_core.signal, signal jsonb)
returns bigint
language plpgsql as $$
begin
    delete from spanmq_core.signal s where s.queue_id = wait.queue_id and s.name = wait.name;
    return (spanmq_core.send_many(this, array[wait.body], array[coalesce(wait.headers, '{}') || jsonb_build_object(
        'x-spanmq-signal', jsonb_build_object('name', wait.name) || signal)], null))[1];
end $$;

-- The part of maintain() for signals: sends up to `budget` messages whose signal did not come in time, and forgets
-- signals that none waited for. One that can't be sent now is tried again after ten seconds: others come first.
create or replace function spanmq_core.end_waits(budget int) returns table (action text, queue text, detail text)
language plpgsql as $$
declare
    of_queue spanmq_core.queue;
    this spanmq_core.signal;
begin
    delete from spanmq_core.signal s where (s.queue_id, s.name) in (
        select o.queue_id, o.name from spanmq_core.signal o where not o.is_wait and o.until <= clock_timestamp()
            order by o.until limit 1000 for update skip locked);
    for this in
        select * from spanmq_core.signal s where s.is_wait and s.until <= clock_timestamp()
            order by s.until limit budget for update skip locked
    loop
        select * into of_queue from spanmq_core.queue q where q.queue_id = this.queue_id;
        continue when not found;
        begin
            perform spanmq_core.end_wait(of_queue, this, '{"timed_out": true}');
            action := 'ended wait';
            queue := of_queue.name;
            detail := this.name;
            return next;
        exception when others then
            if sqlstate not in ('55P03', 'MQ062') then
                raise warning 'maintain() can''t send the message that waited for the signal "%" of queue %: %',
                    this.name, of_queue.name, sqlerrm;
            end if;
            update spanmq_core.signal s set until = clock_timestamp() + interval '10 seconds'
                where s.queue_id = this.queue_id and s.name = this.name;
        end;
    end loop;
end $$;

-- For explain(): the messages that the handler of this message has left to wait for a signal.
create or replace function spanmq_core.explain_waits(this spanmq_core.queue, id bigint)
returns table (code text, sentence text, until timestamptz, object jsonb, call text)
language plpgsql as $$
begin
    return query
        select 'waits'::text, format('Its handler has left a message for queue %s, which waits for the signal "%s".',
                                     q.name, s.name),
               s.until, jsonb_build_object('queue', q.name, 'signal', s.name, 'since', s.made_at),
               format('select spanmq.signal(%L, %L)', q.name, s.name)
        from spanmq_core.signal s join spanmq_core.queue q on q.queue_id = s.queue_id
        where s.of_queue_id = this.queue_id and s.of_msg_id = id and s.is_wait order by q.name, s.name limit 10;
end $$;

-- The messages of a queue that wait for a signal (is_wait), and the signals that are kept, by their names, those after
-- `after`, at most qty; with only_waits no kept signals. until: when the message is sent without the signal, or the
-- signal is forgotten. A body of more than body_bytes_max bytes, as it is stored, is replaced by {"spanmq.cut": bytes}.
create or replace function spanmq_call.list_signals(
    queue text, after text default null, qty integer default 100, only_waits boolean default false,
    body_bytes_max integer default null
) returns table (name text, is_wait boolean, body jsonb, headers jsonb, made_at timestamptz, until timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.check_quantity(qty), spanmq_core.check_body_bytes(body_bytes_max);
    return query
        select s.name, s.is_wait, spanmq_core.cut(s.body, body_bytes_max), s.headers, s.made_at, s.until
        from spanmq_core.signal s
        where s.queue_id = this.queue_id and (after is null or s.name > after collate "C")
          and (s.is_wait or not only_waits and s.until > clock_timestamp())
        order by s.name limit qty;
end $$;
