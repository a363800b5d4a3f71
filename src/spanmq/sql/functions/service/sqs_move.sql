-- Move tasks of the SQS protocol. A step of a task (its row locked, messages received, sent and acked, the step
-- recorded) is one transaction of a service: after any crash a message is in exactly one queue, and any service can
-- continue the task.

create or replace function spanmq_core.sqs_move_row(this spanmq_core.sqs_move) returns spanmq.sqs_move
language sql immutable as $$
    select row(this.handle::text, this.source, this.destination, this.source_arn, this.destination_arn,
               this.access_key_id, this.rate,
               this.status, this.moved, this.to_move, this.failure, this.started_at)::spanmq.sqs_move
$$;

-- The queues that name a queue as their dead-letter queue.
create or replace function spanmq_core.sqs_sources_of(this spanmq_core.queue) returns setof spanmq_core.queue
language sql stable as $$
    select q.* from spanmq_core.sqs_queue s join spanmq_core.queue q using (queue_id)
    where s.attributes operator(pg_catalog.?) 'RedrivePolicy'
    and pg_catalog.lower(spanmq_core.sqs_redrive_to(s.attributes) collate pg_catalog."C")
        operator(pg_catalog.=) this.folded_name
$$;

create or replace function spanmq_core.raise_not_redriven(source text, destination text) returns void
language plpgsql as $$
begin
    raise exception '% as its dead-letter queue',
        coalesce(format('queue %s does not name %s', source, destination), 'no queue names ' || destination)
        using errcode = 'MQ004', hint = 'Set the RedrivePolicy of SQS first.';
end $$;

-- Starts to move messages of a dead-letter queue to the destination, or (null) each to the queue from which it came.
-- Returns null if a task of this source runs. Deletes tasks that ended a month ago. Raises MQ004 for a destination
-- that does not name the source so, MQ002 for a rate out of range. Notifies the services.
create or replace function spanmq_call.start_sqs_move(
    source text, destination text, source_arn text, destination_arn text, to_move bigint, rate int default null,
    access_key_id text default null
) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(source);
    target spanmq_core.queue;
    made uuid;
begin
    if destination is not null then
        target := spanmq_core.find_target(destination);
        if not exists (select from spanmq_core.sqs_sources_of(this) q where q.queue_id = target.queue_id) then
            perform spanmq_core.raise_not_redriven(target.name, this.name);
        end if;
    elsif not exists (select from spanmq_core.sqs_sources_of(this)) then
        perform spanmq_core.raise_not_redriven(null, this.name);
    end if;
    perform spanmq_core.raise_if(rate not between 1 and 500 or to_move is null or source_arn is null,
        'rate must be 1 to 500, and to_move and source_arn not NULL',
        'Pass a rate in messages a second, and what is to be moved.');
    delete from spanmq_core.sqs_move m where m.ended_at < clock_timestamp() - interval '30 days';
    insert into spanmq_core.sqs_move as m (source, destination, source_arn, destination_arn, access_key_id, rate,
                                           to_move)
        values (this.name, target.name, start_sqs_move.source_arn, start_sqs_move.destination_arn,
                start_sqs_move.access_key_id,
                start_sqs_move.rate, start_sqs_move.to_move)
        on conflict do nothing returning m.handle into made;
    perform spanmq_core.notify_channel('spanmq.access');
    return made::text;
end $$;

-- The tasks of a source, the newest first.
create or replace function spanmq.list_sqs_moves(source text, n int default 10) returns setof spanmq.sqs_move
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(source);
begin
    return query select (spanmq_core.sqs_move_row(m)).* from spanmq_core.sqs_move m where m.source = this.name
        order by m.started_at desc limit n;
end $$;

-- The move task with this handle.
create or replace function spanmq.find_sqs_move(handle text) returns setof spanmq.sqs_move
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select (spanmq_core.sqs_move_row(m)).* from spanmq_core.sqs_move m where m.handle::text = find_sqs_move.handle
$$;

-- Stops the task, and returns the number of moved messages; null if no such task runs. Waits for a running step.
create or replace function spanmq_call.cancel_sqs_move(handle text) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.sqs_move;
begin
    update spanmq_core.sqs_move m set status = 'CANCELLED', ended_at = clock_timestamp()
        where m.handle::text = cancel_sqs_move.handle and m.status = 'RUNNING' returning m.* into this;
    return this.moved;
end $$;

-- Returns a task whose next step is due, locked to the end of the transaction; no row if no task is free.
create or replace function spanmq.take_sqs_move() returns setof spanmq.sqs_move
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.sqs_move;
begin
    select m.* into this from spanmq_core.sqs_move m
        where m.status = 'RUNNING' and m.next_at <= clock_timestamp()
        order by m.next_at limit 1 for no key update skip locked;
    if found then
        return next spanmq_core.sqs_move_row(this);
    end if;
end $$;

-- Returns whether any task is running.
create or replace function spanmq.has_sqs_moves() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from spanmq_core.sqs_move m where m.status = 'RUNNING')
$$;

-- Records a step of a task. moved is the number of messages that were moved; 0: the task is done; null: no message can
-- be moved now, and other tasks come first for a second. With failure, the task has failed. Returns the seconds until
-- the next step is due; null if there is none.
create or replace function spanmq.note_sqs_move(
    handle text, moved bigint default null, failure text default null
) returns double precision
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    at_ timestamptz := clock_timestamp();
    this spanmq_core.sqs_move;
begin
    update spanmq_core.sqs_move m
        set moved = m.moved + coalesce(note_sqs_move.moved, 0), failure = note_sqs_move.failure,
            status = case when note_sqs_move.failure is not null then 'FAILED'
            when note_sqs_move.moved = 0 then 'COMPLETED' else m.status end,
            ended_at = case when note_sqs_move.failure is not null or note_sqs_move.moved = 0 then at_ end,
            -- Time during which no service ran is not made up for.
            next_at = case when note_sqs_move.moved is null then at_ + interval '1 second'
                           when m.rate is null then at_
                           else greatest(m.next_at, at_ - interval '1 second') +
                           make_interval(secs => note_sqs_move.moved / m.rate::float) end
        where m.handle::text = note_sqs_move.handle and m.status = 'RUNNING' returning m.* into this;
    return case when this.status = 'RUNNING' then greatest(extract(epoch from this.next_at - at_), 0) end;
end $$;

-- Raises MQ004 unless one of the two queues names the other as its dead-letter queue: the source of a RedrivePolicy,
-- the destination of a task.
create or replace function spanmq_core.check_sqs_move(
    source spanmq_core.queue, destination spanmq_core.queue, task text
) returns void
language plpgsql stable as $$
begin
    if task is null and not exists (
        select from spanmq_core.sqs_sources_of(destination) q where q.queue_id = source.queue_id) then
        perform spanmq_core.raise_not_redriven(source.name, destination.name);
    elsif task is not null and (
        not exists (select from spanmq_core.sqs_move m where m.handle::text = task and m.status = 'RUNNING'
                    and m.source = source.name
                                                        and coalesce(m.destination,
                                                                     destination.name) = destination.name)
        or not exists (select from spanmq_core.sqs_sources_of(source) q where q.queue_id = destination.queue_id)) then
        perform spanmq_core.raise_not_redriven(destination.name, source.name);
    end if;
end $$;

-- Moves messages that the caller holds under a lease, all or none, and returns the ids of the moved messages. They are
-- moved into the dead-letter queue that the source's RedrivePolicy names, or, with the handle of a task, out of a
-- dead-letter queue. The messages array has the bodies for the destination, which may be sealed for it. Headers are
-- copied. received has the number of receives of each message in this queue. Raises MQ062 as send_messages() does,
-- MQ004 for queues of which none names the other, 42501 without the right to receive from the source and to send to
-- the destination.
create or replace function spanmq.move_sqs_messages(
    source text, destination text, lease_id bigint, msg_ids bigint[], messages jsonb[], received bigint[],
    expires_in double precision,
    task text default null
) returns setof bigint
language plpgsql as $$
begin
    return query select * from spanmq_call.move_sqs_messages(
        source, destination, lease_id, msg_ids, messages, received, expires_in, task, spanmq_call.prove_caller());
end $$;

create or replace function spanmq_call.move_sqs_messages(
    source text, destination text, lease_id bigint, msg_ids bigint[], messages jsonb[], received bigint[],
    expires_in double precision, task text, of_caller uuid
) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    from_queue spanmq_core.queue := spanmq_core.find_queue(source);
    to_queue spanmq_core.queue := spanmq_core.find_target(destination);
    acked bigint[];
    headers jsonb[];
    sent_at timestamptz[];
    new_ids bigint[];
    counts bigint[];
    caller name := spanmq_core.take_caller(of_caller);
begin
    perform spanmq_core.check_sqs_move(from_queue, to_queue, task);
    -- The bodies are the caller's.
    perform spanmq_core.check_role_may(caller, from_queue, 'receive'),
        spanmq_core.check_role_may(caller, to_queue, 'send');
    perform spanmq_core.raise_if(expires_in is null or cardinality(messages) is distinct from cardinality(msg_ids)
                                 or cardinality(received) is distinct from cardinality(msg_ids)
                                 or (select count(distinct id) from unnest(msg_ids) id) < cardinality(msg_ids),
        'expires_in cannot be NULL, and messages and received must have one element for each of msg_ids, which are'
        ' all different', 'Pass the MessageRetentionPeriod of the destination.');
    acked := array(select a.msg_id from spanmq_call.ack(from_queue.name, lease_id, msg_ids) a
                   where a.outcome = 'acked');
    if acked = '{}' then
        return;
    end if;
    execute format('select array_agg(u.id order by u.n), array_agg(u.message order by u.n), array_agg(l.headers'
                   ' order by u.n),'
                   ' array_agg(l.enqueued_at order by u.n), array_agg(u.received order by u.n)'
                   ' from unnest($1, $2, $4) with ordinality u (id, message, received, n)'
                   ' join spanmq_core.log_%s l on l.msg_id = u.id where u.id = any ($3)', from_queue.queue_id)
        into acked, messages, headers, sent_at, counts using msg_ids, messages, acked, received;
    if task is null then
        -- A hint for receivers to look into sqs_moved, not a proof.
        headers
            := array(select case when coalesce(jsonb_typeof(h), 'object') = 'object' then coalesce(h, '{}') ||
                     '{"x-sqs-moved": true}' else h end
                         from unnest(headers) with ordinality u (h, n) order by n);
    end if;
    new_ids := array(select s
                     from spanmq_call.send_messages(to_queue.name, messages, headers,
                                                    expires_in => move_sqs_messages.expires_in,
                                                      ordered => to_queue.name like '%.fifo') s);
    if task is null then
        insert into spanmq_core.sqs_moved (queue_id, msg_id, source, first_queue, first_id, sent_at, received,
                                           expires_at)
            select to_queue.queue_id, u.new_id, from_queue.name, coalesce(m.first_queue, from_queue.name),
            coalesce(m.first_id, u.id),
                   coalesce(m.sent_at, u.sent_at), coalesce(m.received, 0) + u.received,
                   clock_timestamp() + make_interval(secs => expires_in)
            from unnest(new_ids, acked, sent_at, counts) u (new_id, id, sent_at, received)
            left join spanmq_core.sqs_moved m on m.queue_id = from_queue.queue_id and m.msg_id = u.id;
        -- A bounded part of what has expired; others may be at it.
        delete from spanmq_core.sqs_moved d using (
            select m.queue_id, m.msg_id from spanmq_core.sqs_moved m where m.expires_at < clock_timestamp()
                order by m.expires_at limit 100 for update skip locked) old
            where d.queue_id = old.queue_id and d.msg_id = old.msg_id;
    end if;
    return query select unnest(acked);
end $$;

-- Returns the queues from which messages of a dead-letter queue come (`source` is the name in SQS); no row for one that
-- was not moved there.
create or replace function spanmq.list_sqs_moved(queue text, msg_ids bigint[])
returns table (msg_id bigint, source text, first_queue text, first_id bigint, sent_at timestamptz, received int)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select m.msg_id,
        case when spanmq_core.sqs_queue_of(s.attributes ->> 'QueueName') = m.source then s.attributes ->> 'QueueName'
        else m.source end,
               m.first_queue, m.first_id, m.sent_at, m.received
        from spanmq_core.sqs_moved m left join spanmq_core.queue q on q.name = m.source
        left join spanmq_core.sqs_queue s on s.queue_id = q.queue_id
        where m.queue_id = this.queue_id and m.msg_id = any (msg_ids);
end $$;
