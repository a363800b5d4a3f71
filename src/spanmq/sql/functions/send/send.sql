-- Sending. Every overload ends in send_one or send_many. A sender has its transaction id before it draws message ids:
-- maintain() relies on it to determine that no transaction can still write to a segment.

-- Sends one message; visible_at null: at once. Returns its id.
create or replace function spanmq_core.send_one(
    queue_name text, message jsonb, headers jsonb, visible_at timestamptz
) returns bigint
language plpgsql as $$
declare
    this_queue int;
    notify_ms int;
    bells bigint;
    has_subscriptions boolean;
    log_name text;
    log_lo bigint;
    log_hi bigint;
    lane int;
    ids regclass;
    room regclass;
    checks_bodies boolean;
    group_by text;
    sent_at timestamptz := clock_timestamp();
    id bigint;
    key text;
begin
    select q.queue_id, q.notify_ms, q.bells, q.log_name, q.log_lo, q.log_hi, q.lane, q.ids, q.room, q.checks_bodies,
           q.group_by
        into this_queue, notify_ms, bells, log_name, log_lo, log_hi, lane, ids, room, checks_bodies, group_by
        from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C")
          and has_table_privilege(q.queue_view, 'select')
          and not q.is_subscription;
    if not found or room is not null or checks_bodies then
        -- Raises what keeps this message from being sent.
        perform spanmq_core.check_sent(spanmq_core.find_target(queue_name), array[message]);
        if this_queue is null then
            -- It was created meanwhile.
            perform spanmq_core.raise_not_found(queue_name);
        end if;
    end if;
    if group_by is not null then
        key := spanmq_core.group_in(group_by, message, headers);
    elsif headers is not null then
        key := spanmq_core.group_of(headers);
    end if;
    -- case: a sender has its transaction id before it draws a message id. maintain() relies on it to determine that no
    -- transaction can still write to a segment.
    if (visible_at > sent_at) is not true then
        insert into spanmq_core.sending (queue_id, msg_id, vt, group_hash, group_key)
            values (this_queue, case when pg_current_xact_id() is not null then nextval(ids) end, sent_at,
                    hashtextextended(key, 0), key)
            returning msg_id into id;
    else
        perform spanmq_core.heed_clock(this_queue);
        insert into spanmq_core.later (queue_id, msg_id, vt, group_hash, group_key)
            values (this_queue, case when pg_current_xact_id() is not null then nextval(ids) end,
                    greatest(visible_at, clock_timestamp()), hashtextextended(key, 0), key)
            returning msg_id into id;
    end if;
    if id > log_lo and id <= log_hi then
        id := spanmq_core.append_by_lane(lane, log_name, id, sent_at, message, headers);
    else
        -- In another segment than the queue's row names.
        perform spanmq_core.append(this_queue, (spanmq_core.find_target(queue_name)).segment_size, id, null, sent_at,
                                   array[message], array[headers]),
                spanmq_core.remember_segment(this_queue, id);
    end if;
    -- Since the id was drawn no subscription can be created before this is committed: earlier ones are seen now.
    if pg_sequence_last_value('spanmq_core.subscription_number') is not null then
        has_subscriptions := exists (select from spanmq_core.subscription s where s.log_id = this_queue);
        if not spanmq_core.sees_now() then
            perform spanmq_core.sees_subscriptions(this_queue);
        end if;
    end if;
    if has_subscriptions then
        insert into spanmq_core.state (queue_id, msg_id, vt, group_hash, group_key)
            select q.queue_id, id, sent_at, hashtextextended(key, 0), key
            from spanmq_core.queues_of(this_queue) q
            where q.queue_id <> this_queue and (visible_at > sent_at) is not true;
        if visible_at > sent_at then
            perform spanmq_core.heed_clock(q.queue_id)
                from spanmq_core.queues_of(this_queue) q where q.queue_id <> this_queue;
            insert into spanmq_core.later (queue_id, msg_id, vt, group_hash, group_key)
                select q.queue_id, id, greatest(visible_at, clock_timestamp()), hashtextextended(key, 0), key
                from spanmq_core.queues_of(this_queue) q where q.queue_id <> this_queue;
        end if;
    end if;
    if notify_ms is not null or bells <> 0 or has_subscriptions then
        if notify_ms is not null or has_subscriptions then
            perform spanmq_core.announce(spanmq_core.find_target(queue_name), visible_at);
        elsif visible_at is null or not spanmq_core.is_foreseen(visible_at) then
            perform spanmq_core.wake(this_queue, bells);
        end if;
    end if;
    return id;
end $$;

-- Sends a batch: all of it or nothing. Returns the ids in the order of the messages. ids: null, or those that the
-- caller has drawn for them.
create or replace function spanmq_core.send_many(
    this spanmq_core.queue, messages jsonb[], headers jsonb[], visible_at timestamptz, ids bigint[] default null
) returns bigint[]
language plpgsql as $$
declare
    n int := cardinality(messages);
    sent_at timestamptz;
begin
    if n is null or n = 0 or headers is not null then
        perform spanmq_core.check_batch(messages, headers);
    end if;
    if this.room is not null or this.checks_bodies then
        perform spanmq_core.check_sent(this, messages);
    end if;
    ids := coalesce(ids, spanmq_core.draw_ids(this.ids, n));
    sent_at := clock_timestamp();
    perform spanmq_core.append_and_publish(this, ids, messages, headers, sent_at, visible_at);
    if this.notify_ms is not null or this.bells <> 0 or this.has_subscriptions then
        perform spanmq_core.announce(this, visible_at);
    end if;
    return ids;
end $$;

create or replace function spanmq_core.append_and_publish(
    this spanmq_core.queue, ids bigint[], messages jsonb[], headers jsonb[], sent_at timestamptz,
    visible_at timestamptz,
    priority int default null
) returns void
language plpgsql as $$
declare
    first_id bigint := ids[1];
    last_id bigint := ids[cardinality(ids)];
    groups text[];
begin
    if last_id - first_id + 1 = cardinality(ids) then
        ids := null;
    end if;
    perform spanmq_core.append(this.queue_id, this.segment_size, first_id, ids, sent_at, messages, headers);
    perform spanmq_core.remember_segment(this.queue_id, last_id);
    if this.group_by is not null then
        groups := array(select spanmq_core.group_in(this.group_by, u.message, u.headers)
                        from unnest(messages, headers) with ordinality u (message, headers, position)
                        order by position);
    elsif headers is not null then
        groups := array(select spanmq_core.group_of(h) from unnest(headers) with ordinality u (h, position)
                        order by position);
    end if;
    perform spanmq_core.publish(this.queue_id, first_id, last_id, ids, groups, visible_at, priority, sent_at);
end $$;

create or replace function spanmq_core.check_batch(messages jsonb[], headers jsonb[]) returns void
language plpgsql immutable as $$
begin
    if cardinality(messages) is null or cardinality(messages) = 0 then
        raise exception 'msgs cannot be NULL or empty'
            using errcode = 'P0001', constraint = 'MQ002', hint = 'Pass at least one message.';
    end if;
    if cardinality(headers) <> cardinality(messages) then
        raise exception 'headers array length (%) must match msgs array length (%)', cardinality(headers),
            cardinality(messages)
            using errcode = 'P0001', constraint = 'MQ002', hint = 'Pass one for each message, or null for none.';
    end if;
end $$;

-- When a message with this delay becomes visible: null for none. Raises MQ002 for a delay that is null, negative or too
-- long.
create or replace function spanmq_core.delayed(delay int) returns timestamptz
language plpgsql volatile as $$
begin
    if delay < 0 then
        raise exception 'delay cannot be negative, got: %', delay
            using errcode = 'P0001', constraint = 'MQ002', hint = '0 is no delay.';
    end if;
    return case when delay = 0 then null else spanmq_core.after(delay, 'delay') end;
end $$;

create or replace function spanmq_core.delayed(delay timestamptz) returns timestamptz
language plpgsql immutable as $$
begin
    if delay is null or not isfinite(delay) then
        raise exception 'delay cannot be NULL or infinite'
            using errcode = 'MQ002', hint = 'Omit it for no delay.';
    end if;
    return delay;
end $$;

-- Sends a message and returns its id. delay: the seconds until the message is visible, or the time at which it is.
-- Raises MQ062 for a full queue.
create or replace function spanmq_call.send(queue_name text, msg jsonb) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, null, null);
end $$;

create or replace function spanmq_call.send(queue_name text, msg jsonb, headers jsonb) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, headers, null);
end $$;

create or replace function spanmq_call.send(queue_name text, msg jsonb, delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, null, spanmq_core.delayed(delay));
end $$;

create or replace function spanmq_call.send(queue_name text, msg jsonb, delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, null, spanmq_core.delayed(delay));
end $$;

create or replace function spanmq_call.send(
    queue_name text, msg jsonb, headers jsonb, delay integer
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, headers, spanmq_core.delayed(delay));
end $$;

create or replace function spanmq_call.send(
    queue_name text, msg jsonb, headers jsonb, delay timestamptz
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return next spanmq_core.send_one(queue_name, msg, headers, spanmq_core.delayed(delay));
end $$;

-- Sends a batch, all of it or nothing, and returns the ids in the order of the messages.
create or replace function spanmq_call.send_batch(queue_name text, msgs jsonb[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this record;
    target spanmq_core.queue;
    n int := cardinality(msgs);
    ids bigint[];
    first_id bigint;
    last_id bigint;
    has_subscriptions boolean;
    sent_at timestamptz;
begin
    select q.queue_id, q.log_lo, q.log_hi, q.log_name, q.lane, q.ids, q.notify_ms, q.bells into this
        from spanmq_core.queue q
        where q.folded_name = lower(queue_name collate "C")
          and not q.is_subscription and q.room is null and not q.checks_bodies and q.group_by is null
          and n > 0 and spanmq_core.sees_now() and has_table_privilege(q.queue_view, 'select');
    if found then
        ids := spanmq_core.draw_ids(this.ids, n);
        first_id := ids[1];
        last_id := ids[n];
        sent_at := clock_timestamp();
        -- As in send_one().
        if pg_sequence_last_value('spanmq_core.subscription_number') is not null then
            has_subscriptions := exists (select from spanmq_core.subscription s where s.log_id = this.queue_id);
        end if;
        if first_id > this.log_lo and last_id <= this.log_hi and last_id - first_id + 1 = n
           and has_subscriptions is not true then
            perform spanmq_core.append_run_by_lane(this.lane, this.log_name, first_id, last_id, sent_at, msgs);
            -- Streamed, as the messages are.
            insert into spanmq_core.state (queue_id, msg_id, vt)
                select this.queue_id, generate_series(first_id, last_id), sent_at;
            if this.notify_ms is not null or this.bells <> 0 then
                perform spanmq_core.announce(spanmq_core.find_target(queue_name), null);
            end if;
            return query select generate_series(first_id, last_id);
            return;
        end if;
    end if;
    -- Where the queue was dropped and created again meanwhile, the ids are not of this one.
    target := spanmq_core.find_target(queue_name);
    return query
        select unnest(spanmq_core.send_many(target, msgs, null, null,
                                            case when target.queue_id = this.queue_id then ids end));
end $$;

create or replace function spanmq_call.send_batch(queue_name text, msgs jsonb[], headers jsonb[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query select unnest(spanmq_core.send_many(spanmq_core.find_target(queue_name), msgs, headers, null));
end $$;

create or replace function spanmq_call.send_batch(queue_name text, msgs jsonb[], delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query
        select unnest(spanmq_core.send_many(spanmq_core.find_target(queue_name), msgs, null,
                                            spanmq_core.delayed(delay)));
end $$;

create or replace function spanmq_call.send_batch(queue_name text, msgs jsonb[], delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query
        select unnest(spanmq_core.send_many(spanmq_core.find_target(queue_name), msgs, null,
                                            spanmq_core.delayed(delay)));
end $$;

create or replace function spanmq_call.send_batch(
    queue_name text, msgs jsonb[], headers jsonb[], delay integer
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query
        select unnest(spanmq_core.send_many(spanmq_core.find_target(queue_name), msgs, headers,
                                            spanmq_core.delayed(delay)));
end $$;

create or replace function spanmq_call.send_batch(
    queue_name text, msgs jsonb[], headers jsonb[], delay timestamptz
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
begin
    return query
        select unnest(spanmq_core.send_many(spanmq_core.find_target(queue_name), msgs, headers,
                                            spanmq_core.delayed(delay)));
end $$;
