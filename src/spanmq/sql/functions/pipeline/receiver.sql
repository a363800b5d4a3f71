-- Receivers: a data engine's streams. An offset is the number of a batch; what a batch holds never changes, so that a
-- replay reads the same rows; it is settled when the engine shows, by the offset from which it goes on, that its
-- checkpoint has it. The messages of a batch don't come back by themselves: a stream that is gone for good is released
-- by hand.

-- Finds or makes the receiver of a checkpoint and raises its incarnation: from now on calls of an earlier reader are
-- refused. receiver null: a new checkpoint. Raises MQ052 if another checkpoint has the label, also if this receiver
-- had it until it was released; adopt_receiver allows the next one to replace it. A checkpoint that has never called
-- receiver_claim does not count: its driver may have ended before the checkpoint had the receiver. Raises MQ054 for a
-- receiver that is not of this queue or this server. token is that of batch `settled` (null: none), and goes with it
-- into the offset.
create or replace function spanmq_call.receiver_open(queue text, receiver uuid default null, label text default null)
returns table (receiver_id uuid, incarnation bigint, settled bigint, newest_id bigint, system_id text, token uuid)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    found_one spanmq_core.receiver;
    silent record;
    at_ constant timestamptz := clock_timestamp();
begin
    perform spanmq_core.commit_durably();
    if receiver is null and label is null then
        for silent in select * from spanmq_core.silent_receivers(this.queue_id, clock_timestamp()) loop
            raise warning 'the receiver % of queue % holds % messages and has not called since %', silent.name,
                this.name, silent.held, silent.seen_at
                using hint = format('This new checkpoint does not get them. `spanmq receiver release %s %s` returns'
                                    ' them to the queue.', this.name, silent.name);
        end loop;
    end if;
    system_id := (select c.system_identifier::text from pg_control_system() c);
    if receiver is null and label is not null then
        select * into found_one from spanmq_core.receiver r
            where r.queue_id = this.queue_id and r.label = receiver_open.label and r.state <> 'released' for update;
        if found_one.state = 'active' and found_one.seen_at = found_one.created_at then
            -- It has never called, so it holds nothing. A new one: where a checkpoint does have it, each has its own.
            update spanmq_core.receiver r set state = 'released', incarnation = r.incarnation + 1
                where r.receiver_id = found_one.receiver_id;
            found_one := null;
        elsif found_one.state = 'active' then
            raise exception 'the receiver % of queue % belongs to another checkpoint', label, this.name
                using errcode = 'MQ052', detail = format('It is %s, last opened at %s.', found_one.receiver_id,
                                                         found_one.opened_at),
                    hint = format('`spanmq receiver adopt %1$s %2$s` lets the next new checkpoint go on in its place,'
                                  ' `spanmq receiver release %1$s %2$s` releases its messages.', this.name, label);
        end if;
        receiver := found_one.receiver_id;
    else
        perform from spanmq_core.receiver r where r.receiver_id = receiver and r.queue_id = this.queue_id for update;
    end if;
    -- After the lock of the receiver.
    newest_id := spanmq_core.drawn_from(this.ids);
    begin
        if receiver is null then
            insert into spanmq_core.receiver (queue_id, label, created_at, opened_at, seen_at)
                values (this.queue_id, receiver_open.label, at_, at_, at_) returning * into found_one;
        else
            update spanmq_core.receiver r
                set incarnation = r.incarnation + 1, state = 'active', opened_at = clock_timestamp(),
                seen_at = clock_timestamp()
                where r.receiver_id = receiver and r.queue_id = this.queue_id returning * into found_one;
            perform spanmq_core.check_receiver(found, this.name::text, receiver);
        end if;
    exception when unique_violation then
        -- Another bears the label since: this instant, or since this one was released.
        label := coalesce((select r.label from spanmq_core.receiver r where r.receiver_id = receiver), label);
        raise exception 'the receiver % of queue % belongs to another checkpoint', label, this.name
            using errcode = 'MQ052',
                hint = format('`spanmq receiver release %s %s` releases the messages of the other and frees the label;'
                              ' a new checkpoint may use another label.',
                              this.name, label);
    end;
    perform spanmq_core.make_log_view(this);
    receiver_id := found_one.receiver_id;
    incarnation := found_one.incarnation;
    settled := found_one.settled;
    token := spanmq_core.token_of_batch(found_one.receiver_id, settled);
    return next;
end $$;

-- The view of a log. With the guard of catalog_views.sql: with a privilege on the view no role locks the log.
create or replace function spanmq_core.log_view_text(this_queue int) returns text
language sql immutable as $$
    select format('create or replace view spanmq.log_%1$s as'
                  ' select case when true or exists (select from spanmq_core.guard_%1$s) then msg_id end as msg_id,'
                  ' enqueued_at, message, headers from spanmq_core.log_%1$s', this_queue)
$$;

-- Makes the view spanmq.log_<queue_id> of a queue's log, unless it exists: streams that may select from it read it, and
-- need no right on the schema of the storage. Of two that make it at a time, the second waits for the first.
create or replace function spanmq_core.make_log_view(this spanmq_core.queue) returns void
language plpgsql as $$
declare
    view_name text := format('spanmq.log_%s', this.queue_id);
begin
    if to_regclass(view_name) is null then
        execute spanmq_core.log_view_text(this.queue_id);
        perform spanmq_core.close_relation(view_name::regclass, '{}');
    end if;
exception
    when duplicate_table or unique_violation then
        null;
    when undefined_table then
        perform spanmq_core.raise_not_found(this.name);
end $$;

-- Raises MQ054 unless the queue has the receiver of a checkpoint.
create or replace function spanmq_core.check_receiver(exists_here boolean, queue text, receiver uuid) returns void
language plpgsql as $$
begin
    perform spanmq_core.raise_if(not exists_here, format('the queue %s has no receiver %s', queue, receiver),
        'The checkpoint belongs to another queue or server, or the queue was dropped since. Use a new checkpoint.',
        'MQ054');
end $$;

-- Locks a receiver for this transaction. Raises MQ051 unless the call is of its newest incarnation, MQ054 if it does
-- not exist.
create or replace function spanmq_core.lock_receiver(
    this spanmq_core.queue, receiver uuid, incarnation bigint
) returns spanmq_core.receiver
language plpgsql as $$
declare
    found_one spanmq_core.receiver;
begin
    select * into found_one from spanmq_core.receiver r where r.receiver_id = receiver and r.queue_id = this.queue_id
        for update;
    perform spanmq_core.check_receiver(found, this.name::text, receiver);
    if found_one.incarnation is distinct from lock_receiver.incarnation then
        raise exception 'this reader of queue % is no longer the receiver %: it was %', this.name, receiver,
                case found_one.state when 'released' then 'released by hand, or replaced before its first call'
                when 'adoptable' then 'given to another checkpoint'
                     else 'opened by another driver' end
            using errcode = 'MQ051',
            hint = 'Nothing is lost: its unsettled messages are in the queue or with the newer reader.';
    end if;
    return found_one;
end $$;

-- Waits for the streams of a queue that claim or settle, before their batches are taken. Their lock comes before those
-- of batches and messages.
create or replace function spanmq_core.hold_receivers(this_queue int) returns void
language plpgsql as $$
begin
    perform from spanmq_core.receiver r where r.queue_id = this_queue order by r.receiver_id for update;
end $$;

-- Settles all batches up to `settled`, which the engine's checkpoint has. Then returns the next batch: the one that an
-- earlier driver has claimed, or else a new one. A new batch has up to qty visible messages with ids up to `last_id`
-- (null: any). Their bodies and headers as text have at most max_bytes (null: any number), but the batch has at least
-- one message. Returns the number of the batch, its token and the number of its messages, or `settled` itself and 0 if
-- no message waits. settled_token is the token of the batch `settled` (null before the first). With ahead it settles
-- nothing, because the engine still reads the batch `settled`. It then claims nothing from a queue with an order or
-- limits, or whose messages have priorities or limits. Raises MQ051 for a reader that is not the newest, MQ054 for a
-- receiver that the queue does not have, MQ055 for a batch that this database does not know.
create or replace function spanmq_call.receiver_claim(
    queue text, receiver uuid, incarnation bigint, settled bigint, qty integer, last_id bigint default null,
    max_bytes bigint default null,
    settled_token uuid default null, ahead boolean default false
) returns table (batch bigint, token uuid, n bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned set enable_sort = off as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reader spanmq_core.receiver := spanmq_core.lock_receiver(this, receiver, receiver_claim.incarnation);
    at_ timestamptz := clock_timestamp();
    lease bigint;
    held record;
    more record;
    taken bigint;
    policy spanmq_core.policy;
    pending bigint;
    until constant timestamptz := '9999-12-30 00:00+00';
    -- So many show how large messages are.
    probe constant int := 1000;
    size record;
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.raise_if(settled is null, 'settled cannot be NULL', '0 before the first batch.');
    perform spanmq_core.raise_if(max_bytes < 1, format('max_bytes must be at least 1, got: %L', max_bytes),
                                 'NULL is not a valid limit.');
    if reader.seen_at < at_ - interval '1 minute' or reader.seen_at = reader.created_at then
        update spanmq_core.receiver r set seen_at = at_ where r.receiver_id = receiver;
    end if;
    perform spanmq_core.commit_durably();
    perform spanmq_core.check_known_batch(this, reader, receiver_claim.settled, settled_token);
    batch := receiver_claim.settled;
    token := settled_token;
    n := 0;
    if ahead is not true then
        perform spanmq_core.settle_batches(this, receiver, receiver_claim.settled);
    elsif not this.is_plain then
        return next;
        return;
    end if;
    select min(b.batch) into pending from spanmq_core.receiver_batch b
        where b.receiver_id = receiver and b.batch > receiver_claim.settled and b.state <> 'released';
    if pending is not null then
        batch := pending;
        select b.token, b.n into token, n from spanmq_core.receiver_batch b
            where b.receiver_id = receiver and b.batch = pending;
        return next;
        return;
    end if;
    lease := -spanmq_core.new_lease(at_);
    -- A time that every driver can read, and no lease lives to see.
    held := spanmq_core.claim_batch(this, case when max_bytes is null then qty else least(qty, probe) end, lease, until,
                                    at_);
    if max_bytes is not null then
        size := spanmq_core.size_of_batch(this.queue_id, held.los, held.his, held.bitmaps, max_bytes);
        if held.n = probe and size.bytes < max_bytes then
            more := spanmq_core.claim_batch(
                this, least(qty - probe, (max_bytes - size.bytes) / greatest(size.bytes / probe, 1))::int, lease, until,
                at_);
            held := spanmq_core.list_batch(this.queue_id, lease, least(held.lo, more.lo), greatest(held.hi, more.hi));
            size := spanmq_core.size_of_batch(this.queue_id, held.los, held.his, held.bitmaps, max_bytes);
        end if;
        last_id := least(last_id, case when size.bytes > max_bytes then size.last_id end);
    end if;
    if held.hi > last_id then
        taken := held.n;
        perform spanmq_core.free_batch(this.queue_id, lease, held.lo, held.hi, last_id);
        held := spanmq_core.list_batch(this.queue_id, lease, held.lo, held.hi);
        policy := spanmq_core.policy_of(this.queue_id);
        if policy.rate_limit is not null then
            perform spanmq_core.take_tokens(this.queue_id, (held.n - taken)::int, policy.rate_limit, policy.rate_burst);
        end if;
    end if;
    if held.n > 0 then
        update spanmq_core.receiver r set batch = r.batch + 1
            where r.receiver_id = receiver returning r.batch into batch;
        insert into spanmq_core.receiver_batch (receiver_id, batch, queue_id, lease_id, n, lo, hi, los, his, attempts,
                                                bitmaps, follows)
            values (receiver, receiver_claim.batch, this.queue_id, lease, held.n, held.lo, held.hi, held.los, held.his,
                    held.attempts, held.bitmaps, settled_token)
            returning receiver_batch.token, receiver_batch.n into token, n;
    end if;
    return next;
end $$;

-- The messages of the batches after `after` up to `batch`, in pieces. Every call returns the same pieces. A piece has
-- the ids from first_id to last_id. With a bitmap, a text of 0 and 1 for the 1,024 ids of msg_id >> 10, it has only
-- those that have a 1. Raises MQ051 for a reader that is not the newest, and for a batch that was released by hand;
-- MQ054 for a receiver that the queue does not have; with fail_on_loss MQ053 for a batch that is gone or was purged;
-- MQ055 if the database does not know the last batch with this token.
create or replace function spanmq_call.receiver_ranges(
    queue text, receiver uuid, incarnation bigint, after bigint, batch bigint, fail_on_loss boolean default true,
    batch_token uuid default null
)
returns table (first_id bigint, last_id bigint, attempt integer, bitmap text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reader spanmq_core.receiver := spanmq_core.lock_receiver(this, receiver, receiver_ranges.incarnation);
    last spanmq_core.receiver_batch;
begin
    perform spanmq_core.raise_if(batch is null or after is null or fail_on_loss is null,
                                 'after, batch and fail_on_loss cannot be NULL', 'after is 0 before the first batch.');
    perform spanmq_core.check_known_batch(this, reader, receiver_ranges.batch, batch_token);
    if batch = after then
        return;
    end if;
    select * into last from spanmq_core.receiver_batch b where b.receiver_id = receiver
        and b.batch = receiver_ranges.batch;
    if last.state = 'released' then
        raise exception 'batch % of queue % was released by hand: its messages are back in the queue', batch, this.name
            using errcode = 'MQ051', hint = 'Use a new checkpoint. The sink gets the messages of this batch again.';
    -- Batches have numbers without gaps: one that is missing was settled, and forgotten when a later one was.
    elsif fail_on_loss and (
            select count(*) filter (where b.state <> 'lost') from spanmq_core.receiver_batch b
            where b.receiver_id = receiver and b.batch > after
            and b.batch <= receiver_ranges.batch) < receiver_ranges.batch - after then
        raise exception 'messages of batch % of queue % are gone: purged, or settled long ago', batch, this.name
            using errcode = 'MQ053',
            detail = format('The checkpoint goes on after batch %s, batches up to %s are settled.', after,
                    (select r.settled from spanmq_core.receiver r where r.receiver_id = receiver)),
                hint = 'With the option failOnDataLoss=false the stream continues without them.';
    end if;
    return query
        select u.lo, u.hi, u.attempts, u.bitmap::text from spanmq_core.receiver_batch b,
        unnest(b.los, b.his, b.attempts, b.bitmaps) u (lo, hi, attempts, bitmap)
        where b.receiver_id = receiver and b.batch > after and b.batch <= receiver_ranges.batch
        and b.state in ('claimed', 'settled')
        order by b.batch, u.lo;
end $$;

-- The view of the queue's log, which shows every row that a batch may need. Null if the caller may not select from it,
-- or no receiver was opened yet. first_id and last_id are the bounds of the ids of the messages in the queue.
create or replace function spanmq_call.receiver_log(
    queue text, by_role text default null
) returns table (log_table text, first_id bigint, last_id bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    name text := format('spanmq.log_%s', this.queue_id);
begin
    log_table := case when has_table_privilege(by_role, to_regclass(name)::oid, 'select') then name end;
    first_id := (select min(u.msg_id) from spanmq_core.unsettled u where u.queue_id = this.queue_id);
    last_id := spanmq_core.drawn_from(this.ids);
    first_id := coalesce(first_id, last_id + 1);
    return next;
end $$;

-- The receivers of a queue, or of all (null), each with the messages that it holds, the time at which it was opened,
-- and the time of its last call, to the minute.
create or replace function spanmq_call.list_receivers(queue text default null)
returns table (queue_name text, receiver uuid, label text, state text, batch bigint, settled bigint, held bigint,
               created_at timestamptz, opened_at timestamptz, seen_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := case when queue is not null then spanmq_core.find_queue(queue) end;
begin
    return query
        select q.name::text, r.receiver_id, r.label, r.state, r.batch, r.settled,
               coalesce((select sum(b.n) from spanmq_core.receiver_batch b where b.receiver_id = r.receiver_id
                         and b.state = 'claimed'), 0)::bigint,
               r.created_at, r.opened_at, r.seen_at
        from spanmq_core.receiver r join spanmq_core.queue q on q.queue_id = r.queue_id
        where queue is null or r.queue_id = this.queue_id
        order by q.name, r.created_at;
end $$;

-- The receivers of a queue that hold messages and have not called for a quarter of an hour.
create or replace function spanmq_core.silent_receivers(this_queue int, at_ timestamptz)
returns table (name text, held bigint, seen_at timestamptz)
language sql stable as $$
    select coalesce(r.label, r.receiver_id::text), sum(b.n)::bigint, r.seen_at
    from spanmq_core.receiver r join spanmq_core.receiver_batch b on b.receiver_id = r.receiver_id
    and b.state = 'claimed'
    where r.queue_id = this_queue and r.state <> 'released' and r.seen_at < at_ - interval '15 minutes'
    group by r.receiver_id order by r.seen_at
$$;

-- The receiver of that label or id. Raises MQ002 for one that there isn't.
create or replace function spanmq_core.find_receiver(this spanmq_core.queue, receiver text) returns spanmq_core.receiver
language plpgsql as $$
declare
    found_one spanmq_core.receiver;
begin
    select * into found_one from spanmq_core.receiver r
        where r.queue_id = this.queue_id
        and (r.label = receiver and r.state <> 'released' or r.receiver_id::text = receiver)
        order by r.state limit 1 for update;
    perform spanmq_core.raise_if(not found, format('the queue %s has no receiver %s', this.name, receiver),
                                 'list_receivers shows what there is.');
    return found_one;
end $$;

-- Allows the next new checkpoint with this receiver's label to replace it, and to take over its messages. A stream that
-- still runs with the label stops with an error.
create or replace function spanmq_call.adopt_receiver(queue text, receiver text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reader spanmq_core.receiver := spanmq_core.find_receiver(this, receiver);
begin
    perform spanmq_core.raise_if(reader.label is null or reader.state = 'released',
        format('the receiver %s has no label under which another checkpoint could find it', receiver),
        'Open the stream with a label if another is to take it over.');
    update spanmq_core.receiver r set state = 'adoptable', incarnation = r.incarnation + 1
        where r.receiver_id = reader.receiver_id;
end $$;

-- Releases the messages that a receiver holds, and its label; returns their number. It first settles the batches up to
-- `settled`, which are done according to a checkpoint. Messages that are in a sink but in no checkpoint are delivered
-- again. A stream that still runs with the receiver stops with an error.
create or replace function spanmq_call.release_receiver(
    queue text, receiver text, settled bigint default null, settled_token uuid default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    reader spanmq_core.receiver := spanmq_core.find_receiver(this, receiver);
    batch spanmq_core.receiver_batch;
    released bigint := 0;
begin
    if settled is not null then
        if settled_token is not null then
            perform spanmq_core.check_known_batch(this, reader, release_receiver.settled, settled_token);
        end if;
        perform spanmq_core.settle_batches(this, reader.receiver_id, release_receiver.settled);
    end if;
    for batch in
        select * from spanmq_core.receiver_batch b where b.receiver_id = reader.receiver_id and b.state = 'claimed'
        order by b.batch for update
    loop
        perform spanmq_core.free_batch(this.queue_id, batch.lease_id, batch.lo, batch.hi, 0);
        update spanmq_core.receiver_batch b set state = 'released' where b.receiver_id = reader.receiver_id
            and b.batch = batch.batch;
        released := released + batch.n;
    end loop;
    update spanmq_core.receiver r set state = 'released', incarnation = r.incarnation + 1
        where r.receiver_id = reader.receiver_id;
    return released;
end $$;
