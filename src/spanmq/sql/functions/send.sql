-- Sending. Every overload ends in send_one or send_many. A sender has its transaction id before it draws message ids:
-- maintain() relies on it when it judges that nobody can still write into a segment.

-- Draws n ids, ascending. They are contiguous unless another sender came between, which costs nothing but a span with gaps.
-- Large batches draw under a lock, else spans shatter. A session lock would survive a cancelled statement; a transaction
-- lock would serialise senders to their commit. This one goes with the rollback of the sub-block, and the ids stay drawn.
create or replace function spanmq.draw_ids(ids regclass, n int) returns bigint[]
language plpgsql as $$
declare
    drawn bigint[];
begin
    if n <= 20 then
        return array(select nextval(ids) from generate_series(1, n));
    end if;
    begin
        perform pg_advisory_xact_lock(spanmq.lock_key('ids', ids::oid::int));
        drawn := array(select nextval(ids) from (select generate_series(1, n)) each);
        raise exception using errcode = 'MQ000';
    exception when sqlstate 'MQ000' then null;
    end;
    return drawn;
end $$;

-- Sends one message; visible_at null: at once. Returns its id. One query finds the queue, checks the right and draws the id (after
-- the transaction id: case keeps that order), into plain variables: a record would be built anew at each call.
create or replace function spanmq.send_one(queue_name text, message jsonb, headers jsonb, visible_at timestamptz) returns bigint
language plpgsql as $$
declare
    this_queue int;
    unlogged boolean;
    notify_ms int;
    waiting regclass;
    woken regclass;
    has_subscriptions boolean;
    is_simple boolean;
    log_name text;
    log_lo bigint;
    log_hi bigint;
    lane int;
    sent_at timestamptz;
    id bigint;
    group_key text;
    now_ms bigint;
begin
    select q.queue_id, q.is_unlogged, q.notify_ms, q.waiting, q.woken, q.has_subscriptions, q.log_name, q.log_lo, q.log_hi, q.lane,
           clock_timestamp(),
           -- Where the backlog is limited, none beyond what there is known to be room for: backlog.sql.
           case when (q.room is null or pg_sequence_last_value(q.ids) < pg_sequence_last_value(q.room)) and pg_current_xact_id() is not null
                then nextval(q.ids) end,
           -- After that: now nobody can subscribe any more before this is committed. Of another file is the sequence if somebody has since this
           -- row was read (or after a restore; maintain() notes it then).
           not q.is_unlogged and not q.has_subscriptions and pg_relation_filenode(q.ids) = q.ids_filenode
        into this_queue, unlogged, notify_ms, waiting, woken, has_subscriptions, log_name, log_lo, log_hi, lane, sent_at, id, is_simple
        from spanmq.queue q
        where q.folded_name = lower(queue_name)
          and has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), q.queue_view, 'insert')
          and not q.is_subscription;
    if lane is not null and id > log_lo and id <= log_hi then
        id := spanmq.append_by_lane(lane, id, sent_at, message, headers);
    elsif id > log_lo and id <= log_hi then
        execute 'insert into spanmq.' || quote_ident(log_name) || ' (msg_id, enqueued_at, message, headers) values ($1, $2, $3, $4)'
            using id, sent_at, message, headers;
    else
        if id is null then
            id := spanmq.draw_with_room(queue_name);
        end if;
        perform spanmq.append_first(queue_name, id, sent_at, message, headers);
    end if;
    if headers is null and visible_at is null and is_simple then
        insert into spanmq.span (queue_id, lo, n, state) values (this_queue, id, 1, 'r');
    elsif is_simple then
        group_key := spanmq.group_of(headers);
        insert into spanmq.span (queue_id, lo, n, state, vt, group_hash, group_key)
            values (this_queue, id, 1, case when visible_at > sent_at then 'w' else 'r' end, visible_at, hashtextextended(group_key, 0), group_key);
    elsif headers is null and visible_at is null and not unlogged then
        insert into spanmq.span (queue_id, lo, n, state) select q.queue_id, id, 1, 'r' from spanmq.queues_of(this_queue) q;
    else
        perform spanmq.publish_one(this_queue, unlogged, id, sent_at, spanmq.group_of(headers), visible_at);
    end if;
    if notify_ms is not null or waiting is not null or has_subscriptions then
        now_ms := extract(epoch from clock_timestamp()) * 1000;
        if notify_ms is not null or has_subscriptions then
            perform spanmq.announce(spanmq.find_queue(queue_name, 'insert'), visible_at);
        -- What spanmq.announce() and wake() do, but here it costs a third: somebody waits for this message. First whether somebody has
        -- been woken a moment ago: where it is sent to fast, that is so almost always, and the rest of the question is spared.
        elsif pg_sequence_last_value(woken) not between now_ms - 10 and now_ms
              and pg_sequence_last_value(waiting) between now_ms and now_ms + 60000
              and not spanmq.is_foreseen(visible_at) then
            perform setval(woken, now_ms), pg_notify(spanmq.channel_of(queue_name), '');
        end if;
    end if;
    return id;
end $$;

-- Appends a message to another segment than the queue's row names.
create or replace function spanmq.append_first(queue_name text, id bigint, sent_at timestamptz, message jsonb, headers jsonb) returns void
language plpgsql as $$
declare
    this spanmq.queue := spanmq.find_queue(queue_name, 'insert');
begin
    perform spanmq.append(this.queue_id, this.segment_size, id, null, sent_at, array[message], array[headers]);
    perform spanmq.remember_segment(this.queue_id, id);
end $$;

create or replace function spanmq.publish_one(
    this_queue int, unlogged boolean, id bigint, sent_at timestamptz, group_key text, visible_at timestamptz
) returns void
language plpgsql as $$
declare
    state text := case when visible_at > sent_at then 'w' else 'r' end;
begin
    if unlogged then
        perform spanmq.insert_spans_unlogged(this_queue, id, id, null, array[group_key], visible_at, state);
    else
        perform spanmq.insert_spans(this_queue, id, id, null, array[group_key], visible_at, state);
    end if;
end $$;

-- Sends a batch: all of it or nothing. Returns the ids in the order of the messages.
create or replace function spanmq.send_many(this spanmq.queue, messages jsonb[], headers jsonb[], visible_at timestamptz) returns bigint[]
language plpgsql as $$
declare
    n int := cardinality(messages);
    transaction_id xid8 := pg_current_xact_id();
    ids bigint[];
    first_id bigint;
    last_id bigint;
    sent_at timestamptz;
begin
    if n is null or n = 0 or headers is not null then
        perform spanmq.check_batch(messages, headers);
    end if;
    if this.room is not null then
        perform spanmq.check_room(this, n);
    end if;
    ids := spanmq.draw_ids(this.ids, n);
    first_id := ids[1];
    last_id := ids[n];
    sent_at := clock_timestamp();
    if first_id > this.log_lo and last_id <= this.log_hi and last_id - first_id + 1 = n and headers is null and not this.is_unlogged then
        -- The usual case. Functions that return sets are streamed in a select list; in a from list they would be copied first.
        if this.lane is not null then
            perform spanmq.append_run_by_lane(this.lane, first_id, last_id, sent_at, messages);
        else
            execute format('insert into spanmq.%I (msg_id, enqueued_at, message) select generate_series($1, $2), $3, unnest($4)', this.log_name)
                using first_id, last_id, sent_at, messages;
        end if;
        if visible_at is null and not this.has_subscriptions and this.ids_filenode = pg_relation_filenode(this.ids) then
            -- What insert_spans() does where nobody has subscribed: see send_one().
            insert into spanmq.span (queue_id, lo, n, state)
                select this.queue_id, greatest(first_id, block * 256), least(last_id + 1, block * 256 + 256) - greatest(first_id, block * 256), 'r'
                from generate_series(first_id / 256, last_id / 256) block;
        else
            perform spanmq.insert_spans(this.queue_id, first_id, last_id, null, null, visible_at,
                                        case when visible_at > sent_at then 'w' else 'r' end);
        end if;
    else
        perform spanmq.append_and_publish(this, ids, messages, headers, sent_at, visible_at);
    end if;
    if this.notify_ms is not null or this.waiting is not null or this.has_subscriptions then
        perform spanmq.announce(this, visible_at);
    end if;
    return ids;
end $$;

create or replace function spanmq.append_and_publish(
    this spanmq.queue, ids bigint[], messages jsonb[], headers jsonb[], sent_at timestamptz, visible_at timestamptz,
    priority int default null
) returns void
language plpgsql as $$
declare
    first_id bigint := ids[1];
    last_id bigint := ids[cardinality(ids)];
    state text := case when visible_at > sent_at then 'w' else 'r' end;
    groups text[];
begin
    if last_id - first_id + 1 = cardinality(ids) then
        ids := null;
    end if;
    perform spanmq.append(this.queue_id, this.segment_size, first_id, ids, sent_at, messages, headers);
    perform spanmq.remember_segment(this.queue_id, last_id);
    if headers is not null then
        groups := array(select spanmq.group_of(h) from unnest(headers) with ordinality u (h, position) order by position);
        if array_remove(groups, null) = '{}' then
            groups := null;
        end if;
    end if;
    if this.is_unlogged then
        perform spanmq.insert_spans_unlogged(this.queue_id, first_id, last_id, ids, groups, visible_at, state, priority);
    else
        perform spanmq.insert_spans(this.queue_id, first_id, last_id, ids, groups, visible_at, state, priority);
    end if;
end $$;

create or replace function spanmq.check_batch(messages jsonb[], headers jsonb[]) returns void
language plpgsql immutable as $$
begin
    if cardinality(messages) is null or cardinality(messages) = 0 then
        raise exception 'msgs cannot be NULL or empty'
            using errcode = 'MQ002', hint = 'Send at least one message, or don''t call.';
    end if;
    if cardinality(headers) <> cardinality(messages) then
        raise exception 'headers array length (%) must match msgs array length (%)', cardinality(headers), cardinality(messages)
            using errcode = 'MQ002', hint = 'Give one for each message; null is none.';
    end if;
end $$;

-- When a message with this delay becomes visible: null for none. Raises MQ002 for a delay that is null, negative or too long.
create or replace function spanmq.delayed(delay int) returns timestamptz
language plpgsql volatile as $$
begin
    if delay < 0 then
        raise exception 'delay cannot be negative, got: %', delay
            using errcode = 'MQ002', hint = '0 is no delay.';
    end if;
    return case when delay = 0 then null else spanmq.after(delay, 'delay') end;
end $$;

create or replace function spanmq.delayed(delay timestamptz) returns timestamptz
language plpgsql immutable as $$
begin
    if delay is null or not isfinite(delay) then
        raise exception 'delay cannot be NULL or infinite'
            using errcode = 'MQ002', hint = 'Leave it out for no delay.';
    end if;
    return delay;
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, null, null);
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, headers, null);
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb, delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, null, spanmq.delayed(delay));
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb, delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, null, spanmq.delayed(delay));
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb, delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, headers, spanmq.delayed(delay));
end $$;

create or replace function pgmq.send(queue_name text, msg jsonb, headers jsonb, delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return next spanmq.send_one(queue_name, msg, headers, spanmq.delayed(delay));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, null, null));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[]) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, headers, null));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, null, spanmq.delayed(delay)));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, null, spanmq.delayed(delay)));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay integer) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, headers, spanmq.delayed(delay)));
end $$;

create or replace function pgmq.send_batch(queue_name text, msgs jsonb[], headers jsonb[], delay timestamptz) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    return query select unnest(spanmq.send_many(spanmq.find_queue(queue_name, 'insert'), msgs, headers, spanmq.delayed(delay)));
end $$;
