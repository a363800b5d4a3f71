-- Sending by COPY. A role that may write into the log itself has its ids drawn (copy_begin), copies the messages
-- straight into the segments, and makes runs of them (copy_publish), in one transaction. Until the last step there are
-- rows in the log but no run, so they are invisible, and if the transaction is rolled back before, they are ordinary
-- dead rows.

-- Draws n ids for messages that the caller will copy into spanmq.<log_table> (msg_id, enqueued_at, message, headers), and says
-- where: one row for each run of ids in one segment, ascending, with the enqueued_at that the rows are to have.
-- No row means "not for you: use send_batch": the caller lacks INSERT on a segment or USAGE on schema spanmq_core.
-- Locks these segments to commit, as any sender does. Raises 42P01, 42501 and MQ062 as send_batch does, MQ002 for an n that is null or not of 1 to 1,000,000.
create or replace function spanmq_call.copy_begin(queue text, n int, by_role text default null)
returns table (log_table text, first_id bigint, last_id bigint, enqueued_at timestamptz)
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    segment spanmq_core.segment;
    transaction_id xid8;
    ids bigint[];
    run record;
    sent_at timestamptz;
    names text[] := '{}';
    firsts bigint[] := '{}';
    lasts bigint[] := '{}';
begin
    if n is null or n < 1 or n > 1000000 then
        raise exception 'n must be between 1 and 1000000, got: %', n
            using errcode = 'MQ002', hint = 'Write more in several runs.';
    end if;
    -- Looked at before any id is drawn: the usual refusal leaves no gap.
    select * into segment from spanmq_core.segment s where s.queue_id = this.queue_id order by s.queue_id desc, s.lo desc limit 1;
    if not spanmq_core.may_copy(by_role, coalesce(segment.log_name, 'log_' || this.queue_id)) then
        return;
    end if;
    if this.room is not null then
        perform spanmq_core.check_room(this, n);
    end if;
    -- Before the ids: see send.sql.
    transaction_id := pg_current_xact_id();
    ids := spanmq_core.draw_ids(this.queue_id, this.ids, n);
    sent_at := clock_timestamp();
    for run in
        select ids[1] as lo, ids[n] as hi where ids[n] - ids[1] + 1 = n
        union all
        select min(d.id), max(d.id)
        from (select u.id, u.id - u.position as shift from unnest(ids) with ordinality u (id, position)
              where ids[n] - ids[1] + 1 > n) d
        group by d.shift order by lo
    loop
        while run.lo <= run.hi loop
            segment := spanmq_core.enter_segment(this.queue_id, run.lo, this.segment_size);
            if not spanmq_core.may_copy(by_role, segment.log_name) then
                return;
            end if;
            -- The lock that COPY takes, but now: the caller may be slow, and maintain() must not truncate what is empty as yet.
            execute format('lock table spanmq_core.%I in row exclusive mode', segment.log_name);
            names := names || segment.log_name;
            firsts := firsts || run.lo;
            lasts := lasts || least(run.hi, segment.hi);
            run.lo := segment.hi + 1;
        end loop;
    end loop;
    return query select u.name, u.lo, u.hi, sent_at from unnest(names, firsts, lasts) u (name, lo, hi);
end $$;

create or replace function spanmq_core.may_copy(by_role text, log_name text) returns boolean
language sql stable as $$
    select has_schema_privilege(by_role, 'spanmq_core', 'usage')
           and has_table_privilege(by_role, format('spanmq_core.%I', log_name), 'insert')
$$;

-- Makes messages of the rows that this transaction copied under the ids first_ids[i] to last_ids[i]: ascending runs,
-- each in one segment, as copy_begin returned them. delay null: visible at once. Returns the ids. Raises MQ002, and
-- publishes nothing, unless each id has a row that this very transaction wrote (savepoints make no difference) and that
-- no run holds yet. So a role cannot publish rows of another transaction, or messages that were settled before.
-- Messages that the same transaction has published and settled are in no run any more: publishing them again sends them
-- again. It is not checked whether a role that may write to the log used ids that it had not drawn, where no row
-- exists: it can only damage its own messages by that, and block others.
create or replace function spanmq_call.copy_publish(queue text, first_ids bigint[], last_ids bigint[], delay timestamptz default null)
returns setof bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp :pinned as $$
declare
    this spanmq_core.queue := spanmq_core.find_target(queue);
    visible_at timestamptz := case when delay is not null then spanmq_core.delayed(delay) end;
    groups text[];
begin
    if cardinality(first_ids) is null or cardinality(first_ids) = 0
       or cardinality(first_ids) is distinct from cardinality(last_ids)
       or array_position(first_ids || last_ids, null) is not null then
        raise exception 'first_ids and last_ids must be arrays of one length, not NULL or empty'
            using errcode = 'MQ002', hint = 'Pass the result of copy_begin(), one pair for each run.';
    end if;
    for i in 1 .. cardinality(first_ids) loop
        if first_ids[i] > last_ids[i] or first_ids[i] <= last_ids[i - 1] then
            raise exception 'first_ids and last_ids must be ascending runs' using errcode = 'MQ002',
                detail = format('Run %s is %s to %s.', i, first_ids[i], last_ids[i]), hint = 'Pass the result of copy_begin(), in its order.';
        end if;
        groups := spanmq_core.check_copied(this, first_ids[i], last_ids[i]);
        perform spanmq_core.publish(this.queue_id, first_ids[i], last_ids[i], null, groups, visible_at);
    end loop;
    if this.notify_ms is not null or this.waiting is not null or this.has_subscriptions then
        perform spanmq_core.announce(this, visible_at);
    end if;
    return query select generate_series(u.lo, u.hi) from unnest(first_ids, last_ids) with ordinality u (lo, hi, position)
        order by u.position;
end $$;

-- Raises MQ002 unless a run may be published; returns the group of each of its messages, or null if none has one.
create or replace function spanmq_core.check_copied(this spanmq_core.queue, first_id bigint, last_id bigint) returns text[]
language plpgsql as $$
declare
    segment spanmq_core.segment := spanmq_core.segment_of(this.queue_id, first_id);
    found bigint;
    writers xid[];
    has_headers boolean;
    bad_headers jsonb;
    is_published boolean;
    groups text[];
begin
    if segment.lo is null or segment.hi < last_id or segment.state <> 'open' then
        raise exception 'the ids % to % are not in one open segment', first_id, last_id
            using errcode = 'MQ002', hint = 'Publish the ids that copy_begin() returned in this transaction.';
    end if;
    execute format('select sum(w.n), array_agg(w.writer), bool_or(w.has_headers), (array_agg(w.bad_headers) filter (where w.bad_headers is not null))[1]'
                   ' from (select l.xmin as writer, count(*) as n, bool_or(l.headers is not null) as has_headers,'
                   ' (array_agg(l.headers) filter (where jsonb_typeof(l.headers) <> ''object''))[1] as bad_headers'
                   ' from spanmq_core.%I l where l.msg_id between $1 and $2 group by l.xmin) w', segment.log_name)
        into found, writers, has_headers, bad_headers using first_id, last_id;
    if bad_headers is not null then
        perform spanmq_core.raise_headers(bad_headers);
    end if;
    if found is distinct from last_id - first_id + 1 then
        raise exception 'the log has % of the % messages % to %', coalesce(found, 0), last_id - first_id + 1, first_id, last_id
            using errcode = 'MQ002', hint = 'Copy a row for each id before publishing.';
    end if;
    perform spanmq_core.check_logged(this, segment.log_name, first_id, last_id);
    if not (select bool_and(spanmq_core.is_own(w)) from unnest(writers) w) then
        raise exception 'the messages % to % were not written by this transaction', first_id, last_id
            using errcode = 'MQ002', hint = 'Copy and publish in one transaction; nothing of it may have been rolled back.';
    end if;
    select exists (select from spanmq_core.queues_of(this.queue_id) q,
                       lateral spanmq_core.runs_with(q.queue_id, int8multirange(int8range(first_id, last_id, '[]')), null) r) into is_published;
    if is_published then
        raise exception 'messages of % to % are published already', first_id, last_id
            using errcode = 'MQ002', hint = 'Publish each run once.';
    end if;
    if has_headers then
        execute format('select array_agg(spanmq_core.group_of(l.headers) order by l.msg_id) from spanmq_core.%I l where l.msg_id between $1 and $2',
                       segment.log_name)
            into groups using first_id, last_id;
        if array_remove(groups, null) = '{}' then
            groups := null;
        end if;
    end if;
    return groups;
end $$;

-- Whether a row that one can see was written by one's own transaction or its savepoints: only then its writer is still in
-- progress. xmin has 32 bits; a writer that precedes this transaction is another.
create or replace function spanmq_core.is_own(writer xid) returns boolean
language plpgsql stable as $$
declare
    own bigint := pg_current_xact_id()::text::bigint;
    distance bigint := (writer::text::bigint - own % 4294967296 + 4294967296) % 4294967296;
begin
    return distance = 0 or distance < 2147483648 and pg_xact_status((own + distance)::text::xid8) = 'in progress';
end $$;
