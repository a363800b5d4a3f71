-- Batches: a message is sent, once, when all messages of a batch are settled.
--
-- A message is settled when it has left its queue: so nothing is counted, and no row is hot. An ack, nack or reject
-- that finds no other message of the batch ends it. Two that commit at the same time each find the other's message:
-- then maintain() ends the batch, as it does where messages leave a queue in other ways. A transaction that ends a
-- batch has locked its row, and checks again under the lock. No transaction waits for that row.

-- Creates a batch: the message is sent into the queue when all messages that add_to_batch() adds in the same
-- transaction are settled. Its header x-spanmq-batch has the id of the batch, and the numbers of all its messages, of
-- those done and of those dead. Returns the id. A batch without messages ends at once. Raises what send() raises.
create or replace function spanmq_call.create_batch(
    queue text, message jsonb, headers jsonb default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    created bigint;
begin
    perform spanmq_core.raise_if(jsonb_typeof(headers) not in ('object', 'null'),
        'the headers of a batch must be a JSON object', 'Such as {"x-pgmq-group": "a"}.');
    perform spanmq_core.check_bodies(this, array[message]);
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.batch (queue_id, message, headers)
        values (this.queue_id, create_batch.message,
                case when jsonb_typeof(create_batch.headers) = 'object' then create_batch.headers end)
        returning batch_id into created;
    return created;
end $$;

-- Adds messages of a queue to a batch that this transaction has created. Returns the number of messages that were not
-- in it before. Ids that are not in the queue count as settled. Raises MQ002 for another batch and for ids that are
-- null or below 1.
create or replace function spanmq_call.add_to_batch(queue text, batch_id bigint, msg_ids bigint[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    added int8multirange;
    n bigint;
begin
    perform spanmq_core.raise_if(
        not exists (select from spanmq_core.batch b where b.batch_id = add_to_batch.batch_id
                    and b.created_in = pg_current_xact_id_if_assigned() and b.ended_at is null),
        format('this transaction has not created an open batch %s', coalesce(add_to_batch.batch_id::text, 'NULL')),
        'Create a batch and add its messages in one transaction.');
    perform spanmq_core.raise_if(msg_ids is null
                                 or exists (select from unnest(msg_ids) id
                                            where (id between 1 and 9223372036854775806) is not true),
        format('msg_ids must be ids of messages, got: %s', coalesce(left(msg_ids::text, 100), 'NULL')),
        'Pass the ids that send_batch() returned.');
    added := (select coalesce(range_agg(int8range(id, id, '[]')), '{}') from unnest(msg_ids) id)
             - (select coalesce(range_agg(p.ids), '{}') from spanmq_core.batch_part p
                where p.batch_id = add_to_batch.batch_id and p.queue_id = this.queue_id);
    insert into spanmq_core.batch_part (batch_id, queue_id, ids) select add_to_batch.batch_id, this.queue_id, r
        from unnest(added) r;
    n := (select coalesce(sum(upper(r) - lower(r)), 0) from unnest(added) r);
    update spanmq_core.batch b set total = b.total + n where b.batch_id = add_to_batch.batch_id;
    perform spanmq_core.watch(this.queue_id);
    return n;
end $$;

-- The newest batches that send into these queues, those before the batch `before` (null: from the newest), at most qty
-- for each queue. For an open batch, unsettled is the number of messages that are not settled yet. Batches that have
-- ended are kept for seven days. headers do not include x-spanmq-calls, the ids of the messages.
create or replace function spanmq_call.list_batches(queues text[] default null, before bigint default null,
                                                    qty integer default 100)
returns table (batch_id bigint, queue text, message jsonb, headers jsonb, total bigint, unsettled bigint, done bigint,
               dead bigint,
               created_at timestamptz, ended_at timestamptz, sent_msg_id bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp :pinned as $$
#variable_conflict use_column
begin
    perform spanmq_core.check_quantity(qty);
    return query
        select b.batch_id, q.name::text, b.message, b.headers - 'x-spanmq-calls', b.total,
        case when b.ended_at is null then spanmq_core.count_unsettled(b.batch_id) else 0 end,
               b.done, b.dead, b.created_at, b.ended_at, b.sent_msg_id
        from spanmq_core.queue q cross join lateral (
            select * from spanmq_core.batch n where n.queue_id = q.queue_id and (before is null or n.batch_id < before)
                order by n.batch_id desc limit qty) b
        where queues is null or q.folded_name = any (array(select lower(n collate "C") from unnest(queues) n))
        order by b.batch_id desc;
end $$;

-- Whether a message of a batch is in its queue. In one statement: a message that moves from state to later is in one of
-- them.
create or replace function spanmq_core.has_unsettled(this_batch bigint) returns boolean
language plpgsql volatile as $$
begin
    -- From the end: messages are settled from the beginning, and leave dead rows there.
    return exists (
        select from spanmq_core.batch_part p
        where p.batch_id = this_batch and (
            (select true from spanmq_core.state s
             where s.queue_id = p.queue_id and s.msg_id < upper(p.ids)
               and s.msg_id >= greatest(lower(p.ids), (select b.from_id from spanmq_core.bound b
                                                       where b.queue_id = p.queue_id
                                                       order by b.queue_id desc, b.number desc limit 1))
             order by s.queue_id desc, s.msg_id desc limit 1)
            or (select true from spanmq_core.later s
                where s.queue_id = p.queue_id and s.msg_id < upper(p.ids) and s.msg_id >= lower(p.ids)
                order by s.queue_id desc, s.msg_id desc limit 1)));
end $$;

create or replace function spanmq_core.count_unsettled(this_batch bigint) returns bigint
language plpgsql stable as $$
begin
    return (
        select count(*) from spanmq_core.batch_part p
        join spanmq_core.unsettled u on u.queue_id = p.queue_id and u.msg_id >= lower(p.ids) and u.msg_id < upper(p.ids)
        where p.batch_id = this_batch);
end $$;

-- Ends a batch if all its messages are settled: sends its message. False if it is open, another transaction is ending
-- it, or the message cannot be sent now. Hardly waits for locks: a settlement must not wait for the queue into which
-- the batch sends.
create or replace function spanmq_core.end_batch(this_batch bigint, out has_ended boolean, out trouble text)
language plpgsql set lock_timeout = '20ms' as $$
declare
    this spanmq_core.batch;
    of_queue spanmq_core.queue;
begin
    has_ended := false;
    -- Without a lock first: a lock gives the transaction an id.
    if spanmq_core.has_unsettled(this_batch) then
        return;
    end if;
    select * into this from spanmq_core.batch b where b.batch_id = this_batch and b.ended_at is null
        for update skip locked;
    -- A new statement, under the lock: its last holder may have returned a message.
    if not found or spanmq_core.has_unsettled(this_batch) then
        return;
    end if;
    select * into of_queue from spanmq_core.queue q where q.queue_id = this.queue_id;
    if not found then
        -- It was dropped, and maintain() removes the batch.
        return;
    end if;
    -- Dead letters that were not redriven.
    this.dead := (
        select coalesce(sum(
            (select count(*) from spanmq_core.dead_letter d
             where d.queue_id = p.queue_id and d.msg_id >= lower(p.ids) and d.msg_id < upper(p.ids)
             and d.redriven_at is null)), 0)
        from spanmq_core.batch_part p where p.batch_id = this_batch);
    this.done := this.total - this.dead;
    this.sent_msg_id
        := (spanmq_core.send_many(of_queue, array[this.message],
                                  array[coalesce(this.headers, '{}') || jsonb_build_object(
        'x-spanmq-batch', jsonb_build_object('id', this.batch_id, 'total', this.total, 'done', this.done, 'dead',
                                             this.dead))], null))[1];
    update spanmq_core.batch b set ended_at = clock_timestamp(), done = this.done, dead = this.dead,
        sent_msg_id = this.sent_msg_id
        where b.batch_id = this_batch;
    delete from spanmq_core.batch_part p where p.batch_id = this_batch;
    has_ended := true;
exception
    when lock_not_available or sqlstate 'MQ062' then
        -- A sender creates a segment, the queue is being dropped, or is full: maintain() tries again.
        has_ended := false;
    when others then
        has_ended := false;
        trouble := sqlerrm;
end $$;

-- Makes settlements of a queue look for batches and for waiting sessions. If another transaction has locked the queue's
-- row, maintain() does it later.
create or replace function spanmq_core.watch(this_queue int) returns void
language plpgsql as $$
begin
    perform from spanmq_core.queue q where q.queue_id = this_queue and not q.is_watched for no key update skip locked;
    if found then
        update spanmq_core.queue q set is_watched = true where q.queue_id = this_queue;
    end if;
end $$;

-- Notifies the clients that wait for messages of a queue that is watched, of which these have left it.
create or replace function spanmq_core.note_settled(this spanmq_core.queue, ids bigint[]) returns void
language plpgsql as $$
begin
    if ids <> '{}' and exists (select from spanmq_core.settle_wait w where w.queue_id = this.queue_id
               and w.until > clock_timestamp()) then
        perform spanmq_core.notify_channel('spanmq.s_' || this.folded_name, (
            select int8range(min(id), max(id), '[]') from unnest(ids) id)::text);
    end if;
end $$;

-- For what workers do: ends batches whose last messages these may have been, which have left the queue.
create or replace function spanmq_core.end_batches_of(this spanmq_core.queue, ids bigint[]) returns void
language plpgsql as $$
declare
    settled int8range;
    this_batch bigint;
begin
    if not this.is_watched or ids = '{}' then
        return;
    end if;
    settled := (select int8range(min(id), max(id), '[]') from unnest(ids) id);
    -- A few of them: a sender may have added these messages to any number of batches. maintain() ends the others.
    for this_batch in
        select b.batch_id from (
            select distinct n.batch_id from (
                select p.batch_id from spanmq_core.batch_part p
                where int4range(p.queue_id, p.queue_id, '[]') && int4range(this.queue_id, this.queue_id, '[]')
                  and p.ids && settled
                limit 100) n) b
        order by random() limit 20
    loop
        perform spanmq_core.end_batch(this_batch);
    end loop;
end $$;

-- The part of maintain() for batches, before it has a transaction id: ends those whose messages are settled, a row
-- each. Looks at 200 at most: the oldest, and some from anywhere.
create or replace function spanmq_core.end_batches(budget int) returns table (action text, queue text, detail text)
language plpgsql as $$
declare
    candidates bigint[] := array(select b.batch_id from spanmq_core.batch b where b.ended_at is null order by b.batch_id
                                 limit 100);
    newest bigint;
    candidate bigint;
    ending record;
    n int := 0;
begin
    if cardinality(candidates) = 100 then
        newest := (select max(b.batch_id) from spanmq_core.batch b where b.ended_at is null);
        candidates := candidates || array(
            select b.batch_id from spanmq_core.batch b
            where b.ended_at is null and b.batch_id > candidates[100] + (random() * (newest - candidates[100]))::bigint
            - 50
              and b.batch_id > candidates[100]
            order by b.batch_id limit 100);
    end if;
    foreach candidate in array candidates loop
        exit when n >= budget;
        ending := spanmq_core.end_batch(candidate);
        if ending.trouble is not null then
            raise warning 'maintain() can''t send the message of batch %: %', candidate, ending.trouble;
        end if;
        continue when not ending.has_ended;
        action := 'ended batch';
        queue := (select q.name from spanmq_core.batch b join spanmq_core.queue q on q.queue_id = b.queue_id
                  where b.batch_id = candidate);
        detail := candidate;
        return next;
        n := n + 1;
    end loop;
end $$;
