-- Sending by COPY. A role that may write into the log itself (the verb bulk) has its ids drawn (copy_begin), copies the
-- messages straight into the segments, and makes messages of them (copy_publish), in one transaction. Until the last
-- step there are rows in the log but no state, so they are invisible, and if the transaction is rolled back before,
-- they are ordinary dead rows.

-- Draws n ids for messages that the caller will copy into spanmq_core.<log_table> (msg_id, enqueued_at, message,
-- headers), and returns one row for each run of ids in one segment, ascending, with the enqueued_at that the rows must
-- have. No row: the caller lacks the verb bulk, and must use send_batch. Locks these segments to commit, as any sender
-- does. Raises MQ062 as send_batch does, MQ002 for an n that is null or not of 1 to 1,000,000.
create or replace function spanmq_call.copy_begin(queue text, n int, by_role text default null)
returns table (log_table text, first_id bigint, last_id bigint, enqueued_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    segment spanmq_core.segment;
    sent_at timestamptz;
    blocks spanmq_core.bulk_block[];
begin
    perform spanmq_core.raise_if(n is null or n < 1 or n > 1000000,
        format('n must be between 1 and 1000000, got: %L', n), 'Write more in several runs.');
    -- Looked at before any id is drawn: the usual refusal leaves no gap.
    select * into segment from spanmq_core.segment s where s.queue_id = this.queue_id order by s.queue_id desc,
        s.lo desc limit 1;
    if not spanmq_core.may_copy(by_role, this.queue_id, coalesce(segment.log_name, 'log_' || this.queue_id)) then
        return;
    end if;
    blocks := array(select b from spanmq_core.draw_blocks(this, n) b);
    sent_at := clock_timestamp();
    if exists (select from unnest(blocks) b where not spanmq_core.may_copy(by_role, this.queue_id, b.log_name)) then
        return;
    end if;
    -- The lock that COPY takes, but now: the caller may be slow, and maintain() must not truncate what is empty as yet.
    perform spanmq_core.lock_log(b.log_name, 'row exclusive') from unnest(blocks) b;
    return query select b.log_name, b.lo, b.hi, sent_at from unnest(blocks) b;
end $$;

-- Draws n ids for rows that will be written into the log before they are published: a block for each run of ids in one
-- segment, ascending.
create or replace function spanmq_core.draw_blocks(this spanmq_core.queue, n int) returns setof spanmq_core.bulk_block
language plpgsql as $$
declare
    segment spanmq_core.segment;
    ids bigint[];
    run record;
    block spanmq_core.bulk_block;
    -- Room for several such blocks: a table more costs as much as thousands of rows.
    size int := case when this.is_partitioned then this.segment_size
                else greatest(this.segment_size, least(4 * n / 256 * 256, 262144)) end;
begin
    if this.room is not null then
        perform spanmq_core.check_room(this, n);
    end if;
    -- Before the ids: see send.sql.
    perform pg_current_xact_id();
    ids := spanmq_core.draw_ids(this.ids, n);
    for run in
        select ids[1] as lo, ids[n] as hi where ids[n] - ids[1] + 1 = n
        union all
        select min(d.id), max(d.id)
        from (select u.id, u.id - u.position as shift from unnest(ids) with ordinality u (id, position)
              where ids[n] - ids[1] + 1 > n) d
        group by d.shift order by lo
    loop
        block.lo := run.lo;
        while block.lo <= run.hi loop
            segment := spanmq_core.enter_segment(this.queue_id, block.lo, size);
            block.hi := least(run.hi, segment.hi);
            block.log_name := segment.log_name;
            return next block;
            block.lo := segment.hi + 1;
        end loop;
    end loop;
end $$;

-- Whether a role may write into a segment itself, by the verb bulk: if so, it gets INSERT on the segment.
create or replace function spanmq_core.may_copy(by_role text, this_queue int, log_name text) returns boolean
language plpgsql as $$
begin
    if not spanmq_core.role_may(by_role, this_queue, 'bulk')
       or not has_schema_privilege(by_role, 'spanmq_core', 'usage') then
        return false;
    elsif not has_table_privilege(by_role, format('spanmq_core.%I', log_name), 'insert') then
        perform spanmq_core.lock(this_queue, 'rights');
        execute format('grant insert on spanmq_core.%I to %I', log_name, by_role);
    end if;
    return true;
end $$;

-- Grants INSERT on a segment to the roles that have the verb themselves; may_copy() does so for their members.
create or replace function spanmq_core.open_segment(this_queue int, log_name text) returns void
language plpgsql as $$
declare
    roles text := (select string_agg(quote_ident(g.role), ', ')
                   from (select spanmq_core.grantees_of('bulk', this_queue) as role
                         union select spanmq_core.grantees_of('bulk', null)) g);
begin
    if roles is not null then
        execute format('grant insert on spanmq_core.%I to %s', log_name, roles);
    end if;
end $$;

-- Makes the rows that this transaction copied under the ids first_ids[i] to last_ids[i] messages. These are ascending
-- runs, each in one segment, as copy_begin returned them. delay null: visible at once. Returns the ids. Raises MQ002,
-- and publishes nothing, unless each id has a row that this very transaction wrote (savepoints make no difference) and
-- that is no message yet. So a role cannot publish rows of another transaction, or messages that were settled before.
-- A message that the same transaction has published and settled is not a message any more: to publish it again sends
-- it again. A role that may write to the log could use ids that it has not drawn, if they have no row. This is not
-- checked: the role can only damage its own messages by it, and block others.
create or replace function spanmq_call.copy_publish(queue text, first_ids bigint[], last_ids bigint[],
                                                    delay timestamptz default null)
returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    visible_at timestamptz := case when delay is not null then spanmq_core.delayed(delay) end;
    groups text[];
begin
    perform spanmq_core.raise_if(cardinality(first_ids) is null or cardinality(first_ids) = 0
       or cardinality(first_ids) is distinct from cardinality(last_ids)
       or array_position(first_ids || last_ids, null) is not null,
        'first_ids and last_ids must be arrays of one length, not NULL or empty',
        'Pass the result of copy_begin(), one pair for each run.');
    for i in 1 .. cardinality(first_ids) loop
        if first_ids[i] > last_ids[i] or first_ids[i] <= last_ids[i - 1] then
            raise exception 'first_ids and last_ids must be ascending runs' using errcode = 'MQ002',
                detail = format('Run %s is %s to %s.', i, first_ids[i], last_ids[i]),
                hint = 'Pass the result of copy_begin(), in its order.';
        end if;
        groups := spanmq_core.check_copied(this, first_ids[i], last_ids[i]);
        perform spanmq_core.publish(this.queue_id, first_ids[i], last_ids[i], null, groups, visible_at);
    end loop;
    perform spanmq_core.announce(this, visible_at);
    return query select generate_series(u.lo, u.hi)
        from unnest(first_ids, last_ids) with ordinality u (lo, hi, position)
        order by u.position;
end $$;

-- Raises MQ002 unless a run may be published; returns the group (or null) of each of its messages, or null if none has
-- headers.
create or replace function spanmq_core.check_copied(
    this spanmq_core.queue, first_id bigint, last_id bigint
) returns text[]
language plpgsql as $$
declare
    segment spanmq_core.segment := spanmq_core.segment_of(this.queue_id, first_id);
    found bigint;
    writers xid[];
    has_headers boolean;
    bad_headers jsonb;
begin
    perform spanmq_core.raise_if(segment.lo is null or segment.hi < last_id or segment.state <> 'open',
        format('the ids %s to %s are not in one open segment', first_id, last_id),
        'Publish the ids that copy_begin() returned in this transaction.');
    execute format('select sum(w.n), array_agg(w.writer), bool_or(w.has_headers), (array_agg(w.bad_headers) filter'
                   ' (where w.bad_headers is not null))[1]'
                   ' from (select l.xmin as writer, count(*) as n, bool_or(l.headers is not null) as has_headers,'
                   ' (array_agg(l.headers) filter (where jsonb_typeof(l.headers) <> ''object''))[1] as bad_headers'
                   ' from spanmq_core.%I l where l.msg_id between $1 and $2 group by l.xmin) w', segment.log_name)
        into found, writers, has_headers, bad_headers using first_id, last_id;
    if bad_headers is not null then
        perform spanmq_core.raise_headers(bad_headers);
    end if;
    perform spanmq_core.raise_if(found is distinct from last_id - first_id + 1,
        format('the log has %s of the %s messages %s to %s', coalesce(found, 0), last_id - first_id + 1, first_id,
               last_id),
        'Copy a row for each id before publishing.');
    perform spanmq_core.check_logged(this, segment.log_name, first_id, last_id);
    perform spanmq_core.raise_if(not (select bool_and(spanmq_core.is_own(w)) from unnest(writers) w),
        format('the messages %s to %s were not written by this transaction', first_id, last_id),
        'Copy and publish in one transaction; nothing of it may have been rolled back.');
    perform spanmq_core.raise_if(
        exists (select from spanmq_core.queues_of(this.queue_id) q,
                    spanmq_core.unsettled u
                where u.queue_id = q.queue_id and u.msg_id between first_id and last_id),
        format('messages of %s to %s are published already', first_id, last_id), 'Publish each run once.');
    return case when has_headers or this.group_by is not null
           then spanmq_core.groups_of(segment.log_name, first_id, last_id, this.group_by) end;
end $$;

-- Whether a row that one can see was written by one's own transaction or its savepoints: only then its writer is still
-- in progress. xmin has 32 bits; a writer that precedes this transaction is another.
create or replace function spanmq_core.is_own(writer xid) returns boolean
language plpgsql stable as $$
declare
    own bigint := pg_current_xact_id()::text::bigint;
    distance bigint := (writer::text::bigint - own % 4294967296 + 4294967296) % 4294967296;
begin
    return distance = 0 or distance < 2147483648 and pg_xact_status((own + distance)::text::xid8) = 'in progress';
end $$;
