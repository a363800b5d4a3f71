-- Writing by many tasks: rows first, published by one transaction. Tasks reserve blocks of ids and copy their rows into
-- the log under them; these rows have no state, so no receiver sees them. One call then makes the blocks that it
-- names visible, all at one instant. What it does not name, of tasks that failed or ran twice, never becomes a message.

-- Reserves n ids for a task of the write (writer, epoch), which the first such call opens. One row for each run of ids
-- in one segment. Commit before the first row is written. No row: this epoch is already published, and there is
-- nothing to write. Raises MQ062 as send does, 42501 also if the caller may not write into the log, MQ002 for an n out
-- of range.
create or replace function spanmq_call.bulk_reserve(queue text, writer text, epoch bigint, n integer,
                                                    by_role text default null)
returns table (write_id bigint, block_id bigint, log_table text, first_id bigint, last_id bigint,
               enqueued_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    this_write bigint;
    block spanmq_core.bulk_block;
begin
    perform spanmq_core.raise_if(n is null or n < 1 or n > 1000000,
        format('n must be between 1 and 1000000, got: %L', n), 'Write more in several runs.');
    perform spanmq_core.raise_if(writer is null or bulk_reserve.epoch is null,
        'writer and epoch cannot be NULL', 'Name the writer, and number its writes.');
    perform spanmq_core.hold_queue(this);
    -- The row is locked to the end of this transaction: the write stays open, and its tasks draw their ids in turn. Ids
    -- that two draw at the same time alternate, and each run of them would be a block. One that opens the write may
    -- wait for another that does.
    for attempt in 1 .. 100 loop
        select w.write_id into this_write from spanmq_core.bulk_write w
            where w.queue_id = this.queue_id and w.writer = bulk_reserve.writer and w.epoch = bulk_reserve.epoch
            for no key update;
        exit when found;
        -- After the check above: publishing deletes the write and writes the ledger in one transaction.
        if exists (select from spanmq_core.bulk_ledger l
                   where l.queue_id = this.queue_id and l.writer = bulk_reserve.writer
                   and l.epoch = bulk_reserve.epoch) then
            return;
        end if;
        insert into spanmq_core.bulk_write (queue_id, writer, epoch)
            values (this.queue_id, bulk_reserve.writer, bulk_reserve.epoch)
            on conflict do nothing;
    end loop;
    write_id := this_write;
    for block in select * from spanmq_core.draw_blocks(this, n) loop
        perform spanmq_core.raise_if(not spanmq_core.may_copy(by_role, this.queue_id, block.log_name),
            format('permission denied for the log of queue %s', this.name),
            format('select spanmq.grant_queue(%L, %L, ''bulk'')', by_role, this.name), '42501');
        enqueued_at := coalesce(enqueued_at, clock_timestamp());
        log_table := block.log_name;
        first_id := block.lo;
        last_id := block.hi;
        insert into spanmq_core.bulk_block (write_id, queue_id, lo, hi, log_name)
            values (this_write, this.queue_id, first_id, last_id, log_table) returning bulk_block.block_id
            into block_id;
        return next;
    end loop;
end $$;

-- Records that the rows of these blocks are written, and returns the number of these rows. Raises MQ050 if the write
-- was closed meanwhile, MQ002 for headers that are not a JSON object.
create or replace function spanmq_call.bulk_seal(queue text, block_ids bigint[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    block spanmq_core.bulk_block;
    found_rows bigint;
    bad_headers jsonb;
    sealed bigint := 0;
begin
    for i in 1 .. coalesce(cardinality(block_ids), 0) loop
        select * into block from spanmq_core.bulk_block b where b.block_id = block_ids[i] and b.queue_id = this.queue_id
            for update;
        if not found then
            perform spanmq_core.raise_closed(this);
        end if;
        execute format('select count(*), coalesce(bool_or(spanmq_core.group_of(l.headers) is not null), false),'
                       ' coalesce(bool_or(l.headers ?| array[''x-spanmq-max-attempts'','
                       ' ''x-spanmq-expires-at'']), false),'
                       ' (array_agg(l.headers) filter (where jsonb_typeof(l.headers) <> ''object''))[1]'
                       ' from spanmq_core.%I l where l.msg_id between $1 and $2', block.log_name)
            into found_rows, block.has_groups, block.has_limits, bad_headers using block.lo, block.hi;
        if bad_headers is not null then
            perform spanmq_core.raise_headers(bad_headers);
        end if;
        perform spanmq_core.check_logged(this, block.log_name, block.lo, block.hi);
        update spanmq_core.bulk_block b set is_sealed = true, has_groups = block.has_groups,
            has_limits = block.has_limits
            where b.block_id = block.block_id;
        sealed := sealed + found_rows;
    end loop;
    return sealed;
end $$;

-- Makes the messages of these blocks visible, all at once, and records in the ledger that (writer, epoch) is
-- published. Returns the number of messages that became visible, or -1 if the epoch was published before, with these
-- or other blocks. An epoch without rows has no write (write_id null). A writer with `records_all` records each of its
-- epochs, also those without rows. Then MQ055 is raised for an epoch if the one before it is not recorded, or a later
-- one is: this database or the checkpoint was set back to an earlier time. MQ055 is also raised for an epoch that was
-- published with another number of rows than `expected`. Raises MQ050, and publishes nothing, if the write was closed;
-- MQ002 if a block is not sealed or misses a row (a crash empties unlogged queues).
create or replace function spanmq_call.bulk_publish(
    queue text, writer text, epoch bigint, write_id bigint default null, block_ids bigint[] default '{}',
    records_all boolean default false, expected bigint default null
) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    block spanmq_core.bulk_block;
    found_rows bigint;
    published bigint := 0;
    blocks int := 0;
    has_limits boolean := false;
    is_open boolean;
begin
    -- As for single sends when ids are drawn: no subscription is created or dropped until this is committed.
    perform spanmq_core.lock_shared(this.queue_id, 'subscriptions');
    -- One publishes: the other waits here, and finds the ledger.
    perform from spanmq_core.bulk_write w
        where w.write_id = bulk_publish.write_id and w.queue_id = this.queue_id and w.writer = bulk_publish.writer
          and w.epoch = bulk_publish.epoch for update;
    is_open := found;
    if not spanmq_core.may_publish(this, writer, epoch, records_all, expected) then
        return -1;
    elsif not is_open and bulk_publish.write_id is not null then
        perform spanmq_core.raise_closed(this);
    end if;
    for block in
        select * from spanmq_core.bulk_block b where b.write_id = bulk_publish.write_id and b.block_id = any (block_ids)
        order by b.lo
    loop
        execute format('select count(*) from spanmq_core.%I l where l.msg_id between $1 and $2', block.log_name)
            into found_rows using block.lo, block.hi;
        perform spanmq_core.raise_if(not block.is_sealed or found_rows <> block.hi - block.lo + 1,
            format('the log has %s of the %s messages %s to %s', found_rows, block.hi - block.lo + 1, block.lo,
                   block.hi),
            'A crash of the server empties unlogged queues. Run the write again.');
        perform spanmq_core.publish(this.queue_id, block.lo, block.hi, null,
                                    case
                                    when block.has_groups or this.group_by is not null
                                    then spanmq_core.groups_of(block.log_name, block.lo, block.hi, this.group_by)
                                    end, null);
        has_limits := has_limits or block.has_limits;
        published := published + found_rows;
        blocks := blocks + 1;
    end loop;
    perform spanmq_core.raise_if(blocks <> coalesce(cardinality(block_ids), 0),
        format('the write has %s of the %s blocks that were named', blocks, cardinality(block_ids)),
        'Name the blocks that bulk_seal() was called for.');
    if has_limits then
        perform spanmq_core.note_use(this, false, true);
    end if;
    insert into spanmq_core.bulk_ledger (queue_id, writer, epoch, n, records_all)
        values (this.queue_id, bulk_publish.writer, bulk_publish.epoch, published, bulk_publish.records_all)
        on conflict do nothing;
    if not found then
        -- Two recorded an epoch without rows at the same time.
        perform spanmq_core.raise_if(published > 0, 'an epoch without rows was recorded meanwhile',
            'Run the write again.');
        return -1;
    end if;
    delete from spanmq_core.bulk_ledger l
        where l.queue_id = this.queue_id and l.writer = bulk_publish.writer and l.epoch <= bulk_publish.epoch - 1000;
    if is_open then
        perform spanmq_core.close_write(bulk_publish.write_id, coalesce(block_ids, '{}'));
    end if;
    if published > 0 then
        perform spanmq_core.announce(this, null);
    end if;
    return published;
end $$;

-- Whether an epoch is still to be published; false: it was. Raises MQ055 for a writer that records all of its epochs,
-- if the one before is missing, or a later one is there. Releases before 0.2.0 did not record those without rows.
create or replace function spanmq_core.may_publish(
    this spanmq_core.queue, by_writer text, this_epoch bigint, records_all boolean, expected bigint
) returns boolean
language plpgsql as $$
declare
    newest spanmq_core.bulk_ledger;
begin
    select * into newest from spanmq_core.bulk_ledger l
        where l.queue_id = this.queue_id and l.writer = by_writer order by l.epoch desc limit 1;
    if records_all and (newest.epoch > this_epoch
                        or coalesce(newest.epoch, -1) < this_epoch - 1 and coalesce(newest.records_all, true)) then
        raise exception 'queue % has %, not the epoch before %', this.name,
            coalesce('epoch ' || newest.epoch || ' as the newest of the stream', 'no epoch of the stream'), this_epoch
            using errcode = 'MQ055',
            detail = case when newest.epoch > this_epoch
                     then 'The checkpoint was set back to an earlier time, or another driver has taken it.'
                     else 'This database was restored to an earlier time, or the stream wrote elsewhere before.' end,
            hint = '`spanmq pipeline restored --checkpoint` names the missing epochs, and has them run again.';
    end if;
    if records_all and newest.epoch = this_epoch and newest.n <> expected then
        raise exception 'queue % has epoch % of the stream with % messages, not %', this.name, this_epoch, newest.n,
            expected using errcode = 'MQ055',
            detail = 'The checkpoint was set back to an earlier time, or the query gives other rows each time.',
            hint = 'Use a newer copy of the checkpoint. With failOnDataLoss=false the epoch stays as it was published.';
    end if;
    return not exists (select from spanmq_core.bulk_ledger l where l.queue_id = this.queue_id and l.writer = by_writer
                       and l.epoch = this_epoch);
end $$;

-- Abandons a write: its rows never become messages, and its blocks are free. Returns null. If the epoch was already
-- published, it stays published, and its number of messages is returned: an engine also aborts a committed write if
-- the answer was lost.
create or replace function spanmq_call.bulk_close(queue text, writer text, epoch bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    this_write bigint;
begin
    select w.write_id into this_write from spanmq_core.bulk_write w
        where w.queue_id = this.queue_id and w.writer = bulk_close.writer and w.epoch = bulk_close.epoch for update;
    if found then
        perform spanmq_core.close_write(this_write, '{}');
    end if;
    return spanmq_call.bulk_published(queue, writer, epoch);
end $$;

-- The number of messages that an epoch of a writer has published; null if it has published none, or is too old.
create or replace function spanmq_call.bulk_published(queue text, writer text, epoch bigint) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
begin
    return (select l.n from spanmq_core.bulk_ledger l
            where l.queue_id = this.queue_id and l.writer = bulk_published.writer and l.epoch = bulk_published.epoch);
end $$;

-- The epochs that a writer has published, of the newest thousand.
create or replace function spanmq_call.published_epochs(queue text, writer text) returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
begin
    return query select l.epoch from spanmq_core.bulk_ledger l
        where l.queue_id = this.queue_id and l.writer = published_epochs.writer order by 1;
end $$;

create or replace function spanmq_core.raise_closed(this spanmq_core.queue) returns void
language plpgsql as $$
begin
    raise exception 'the write into queue % was closed before it was published', this.name
        using errcode = 'MQ050', hint = 'A write that reserves nothing for a day counts as abandoned. Nothing of it was'
                                        ' sent: run it again.';
end $$;

-- Closes the writes of a queue that were not continued for a day, and forgets those that were published without a
-- name before that; returns the number of the former.
create or replace function spanmq_core.close_abandoned(this_queue int) returns bigint
language plpgsql as $$
declare
    abandoned bigint;
    n bigint := 0;
begin
    -- Of a write without a name of its own only its driver, which retries, asks whether it is published.
    delete from spanmq_core.bulk_ledger l
        where l.queue_id = this_queue and l.writer like 'write:%' and l.published_at < now() - interval '1 day';
    for abandoned in
        select w.write_id from spanmq_core.bulk_write w
        where w.queue_id = this_queue and w.opened_at < now() - interval '1 day'
          and not exists (select from spanmq_core.bulk_block b where b.write_id = w.write_id
                          and b.reserved_at > now() - interval '1 day')
        for update skip locked
    loop
        perform spanmq_core.close_write(abandoned, '{}');
        n := n + 1;
    end loop;
    return n;
end $$;

-- Whether a write or a receiver still needs ids of this range in the log. Volatile, a statement each: what leaves a
-- block is in state first, and what leaves state is in later or a batch first: a look in this order misses nothing.
create or replace function spanmq_core.is_reserved(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.bulk_block b where b.queue_id = this_queue and b.lo <= last_id
                   and b.hi >= first_id);
end $$;

create or replace function spanmq_core.is_kept(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    return exists (select from spanmq_core.receiver_batch b
                   where b.queue_id = this_queue and b.lo <= last_id and b.hi >= first_id
                   and b.state in ('claimed', 'settled'));
end $$;
