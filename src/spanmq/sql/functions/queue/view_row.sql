-- Rows that are written through the view of a queue with more than message, headers and vt: a message is restored with
-- its id, its read count or body is changed. As a dead letter that is redriven, it comes back to its place in the log;
-- the segment is held, so that no rewrite or truncation loses it (redrive.sql).

-- Inserts a message with the id, the read count and the times that it has, and returns it. An id above all that were
-- drawn is drawn, with those before it; a lower one must not be in the queue, its archive or dead letters, or in a
-- queue that shares its log. Raises 23505 if it is, MQ002 for a value that no message has.
create or replace function spanmq_core.insert_message(this spanmq_core.queue, message pgmq.message_record)
returns pgmq.message_record
language plpgsql as $$
declare
    drawn bigint;
    segment spanmq_core.segment;
    key text := spanmq_core.group_in(this.group_by, message.message, message.headers);
    is_new boolean := message.msg_id is null;
    is_archived boolean;
    has_changed boolean;
begin
    message.enqueued_at := least(message.enqueued_at, clock_timestamp());
    message.read_ct := coalesce(message.read_ct, 0);
    message.vt := coalesce(message.vt, clock_timestamp());
    perform spanmq_core.check_row(message),
            spanmq_core.raise_if(message.msg_id not between 1 and 9223372036854775806,
                format('%s is not the id of a message', message.msg_id), 'Ids are above 0.');
    perform spanmq_core.check_sent(this, array[message.message]);
    -- With nothing to draw: what a sender does before its first id.
    perform spanmq_core.draw_ids(this.ids, 0);
    drawn := spanmq_core.drawn_from(this.ids);
    if is_new then
        message.msg_id := nextval(this.ids);
    elsif message.msg_id > drawn then
        perform spanmq_core.raise_if(message.msg_id - drawn > 1000000,
            format('id %s of queue %s is far above the last one, %s', message.msg_id, this.name, drawn),
            format('The sequence continues behind it after: select setval(%L, %s)', this.ids, message.msg_id - 1),
            'MQ004');
        -- False: another sender has drawn it meanwhile.
        is_new := (select bool_or(id = message.msg_id)
                   from (select nextval(this.ids) as id from generate_series(drawn + 1, message.msg_id)) d);
    end if;
    perform spanmq_core.enter_segment(this.queue_id, message.msg_id, this.segment_size);
    if not spanmq_core.sees_now() then
        perform spanmq_core.sees_subscriptions(this.queue_id);
    end if;
    segment := spanmq_core.hold_segment(this.queue_id, message.msg_id);
    -- Of sessions that insert one id, and of a sender that drew it, the second waits for the first.
    execute format('insert into spanmq_core.%I (msg_id, enqueued_at, message, headers) values ($1, $2, $3, $4)'
                   ' on conflict (msg_id) do nothing', segment.log_name)
        using message.msg_id, message.enqueued_at, message.message, message.headers;
    execute format('select from spanmq_core.%I where msg_id = $1 for update', segment.log_name) using message.msg_id;
    if not is_new then
        perform spanmq_core.check_isolation('an insert of a msg_id that was drawn before');
        -- A new statement, under the lock.
        if exists (select from spanmq_core.queues_of(this.queue_id) q
                   where exists (select from spanmq_core.unsettled u where u.queue_id = q.queue_id
                                 and u.msg_id = message.msg_id))
           or spanmq_core.is_shared(this, message.msg_id)
           or exists (select from spanmq_core.dead_letter d where d.queue_id = this.queue_id
                      and d.msg_id = message.msg_id and d.redriven_at is null) then
            raise exception 'duplicate key value violates unique constraint "q_%_pkey"', this.folded_name
                using errcode = '23505', detail = format('Key (msg_id)=(%s) already exists.', message.msg_id),
                hint = 'Insert the message without msg_id.';
        end if;
        execute format('select exists (select from %s where msg_id = $1)', spanmq_core.archive_of(this))
            into is_archived using message.msg_id;
        perform spanmq_core.raise_if(is_archived,
            format('message %s of queue %s is archived', message.msg_id, this.name),
            'Delete it from the archive first, in the same statement or transaction.', '23505');
        -- A role that may only send must not change what the log has: replays and readers of the log see it.
        execute format('select (l.message, l.headers) is distinct from ($2, $3) from spanmq_core.%I l'
                       ' where l.msg_id = $1', segment.log_name)
            into has_changed using message.msg_id, message.message, message.headers;
        perform spanmq_core.raise_if(has_changed,
            format('message %s of queue %s was sent with another body or other headers', message.msg_id, this.name),
            'Insert it without msg_id, or as it was sent; then update it.', '23505');
        perform spanmq_core.write_again(this, array[message.msg_id], array[message.enqueued_at], array[message.message],
                                        array[message.headers]);
        -- What was cancelled is the message that was settled before this is noticed.
        delete from spanmq_core.expiry e
            where e.queue_id = this.queue_id and e.msg_id = message.msg_id and e.is_cancelled;
        -- A row of the log keeps its time.
        message.enqueued_at := spanmq_core.enqueued_at(this.queue_id, message.msg_id);
    end if;
    perform spanmq_core.remember_segment(this.queue_id, message.msg_id);
    perform spanmq_core.heed_clock(q.queue_id)
        from spanmq_core.queues_of(this.queue_id) q where is_new or q.queue_id = this.queue_id;
    insert into spanmq_core.later (queue_id, msg_id, attempts, vt, last_read_at, group_hash, group_key)
        select q.queue_id, message.msg_id, case when q.queue_id = this.queue_id then message.read_ct else 0 end,
               greatest(message.vt, clock_timestamp()),
               case when q.queue_id = this.queue_id then message.last_read_at end, hashtextextended(key, 0), key
        from spanmq_core.queues_of(this.queue_id) q where is_new or q.queue_id = this.queue_id;
    perform spanmq_core.announce(this, message.vt);
    return message;
end $$;

-- Changes a message that is as the statement saw it (`was`), and is false for any other: another session has received,
-- hidden or removed it meanwhile. So each message is claimed by one of the sessions that update its read count. Raises
-- MQ004 for columns that never change, MQ060 for the body of a message that other queues have too.
create or replace function spanmq_core.update_message(
    this spanmq_core.queue, was pgmq.message_record, message pgmq.message_record
) returns boolean
language plpgsql as $$
declare
    ids bigint[];
    key text;
begin
    perform spanmq_core.raise_if((message.msg_id, message.enqueued_at) is distinct from (was.msg_id, was.enqueued_at),
            'msg_id and enqueued_at of a message can''t be updated',
            'Delete the message and insert another, in one transaction.', 'MQ004'),
        spanmq_core.check_row(message);
    begin
        ids := spanmq_core.lock_ids(this.queue_id, array[was.msg_id], null::bigint, '{}'::bigint[]);
        if ids = '{}' or not exists (
                select from spanmq_core.unsettled u
                where u.queue_id = this.queue_id and u.msg_id = was.msg_id
                  and (u.attempts, u.last_read_at, u.vt)
                      is not distinct from (was.read_ct, was.last_read_at, was.vt)) then
            raise exception using errcode = 'MQ000';
        end if;
    exception when sqlstate 'MQ000' then
        return false;
    end;
    perform spanmq_core.move_to_later(this.queue_id, ids);
    update spanmq_core.later l
        set attempts = message.read_ct, vt = greatest(message.vt, clock_timestamp()), lease_id = 0,
            last_read_at = message.last_read_at, alone = l.alone & 1
        where l.queue_id = this.queue_id and l.msg_id = was.msg_id;
    if (message.message, message.headers) is distinct from (was.message, was.headers) then
        perform spanmq_core.check_own(this, was.msg_id),
                spanmq_core.check_bodies(this, array[message.message],
                                         format('the new body of message %s', was.msg_id));
        key := spanmq_core.group_in(this.group_by, message.message, message.headers);
        update spanmq_core.later l set group_key = key, group_hash = hashtextextended(key, 0)
            where l.queue_id = this.queue_id and l.msg_id = was.msg_id;
        perform spanmq_core.write_again(this, array[message.msg_id], array[message.enqueued_at], array[message.message],
                                        array[message.headers]);
    end if;
    if this.bells <> 0 and not spanmq_core.is_foreseen(message.vt) then
        perform spanmq_core.wake(this.queue_id, this.bells);
    end if;
    return true;
end $$;

create or replace function spanmq_core.check_row(message pgmq.message_record) returns void
language plpgsql immutable as $$
begin
    -- Claims count on from it.
    perform spanmq_core.raise_if((message.read_ct between 0 and 1000000000) is not true,
            format('read_ct must be 0 to 1000000000, got: %L', message.read_ct), 'It counts the reads.'),
        spanmq_core.raise_if(not isfinite(message.vt) or not isfinite(message.enqueued_at)
                             or not isfinite(message.last_read_at),
            'times of a message cannot be infinite', 'Pass a time.');
end $$;
