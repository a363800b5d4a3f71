-- Creating, dropping and listing queues.

-- In PGMQ, create and drop_queue wait for this lock. Here they do not, because any role can take an advisory lock.
create or replace function pgmq.acquire_queue_lock(queue_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('spanmq.queue.' || lower(queue_name collate "C"), 0));
end $$;

-- Makes the queue unless there is one of that name.
create or replace function spanmq_core.create_queue(
    queue_name text, partitioned boolean, unlogged boolean, out this spanmq_core.queue, out is_new boolean
)
language plpgsql as $$
begin
    perform pgmq.validate_queue_name(queue_name);
    perform pgmq.format_table_name(queue_name, 'q');
    perform spanmq_core.lock_name('queue', lower(queue_name collate "C"));
    -- A new statement: the last holder of the lock may have created it.
    select * into this from spanmq_core.queue q where q.folded_name = lower(queue_name collate "C");
    is_new := not found;
    if is_new then
        this := spanmq_core.make_queue(queue_name, partitioned, unlogged, null);
        return;
    end if;
    raise notice 'queue "%" already exists, skipping', this.name using errcode = '42P07';
    if spanmq_core.archive_of(this) is null then
        perform spanmq_core.make_archive('a_' || this.folded_name);
        perform spanmq_core.open_relations(this);
    end if;
    if spanmq_core.is_gone(this) then
        update spanmq_core.queue q set queue_view = spanmq_core.make_view(q.queue_id, 'q_' || q.folded_name)
            where q.queue_id = this.queue_id
            returning q.* into this;
        perform spanmq_core.open_relations(this);
    end if;
end $$;

-- The same for callers of create(): the caller manages the queue. So the archive of a queue whose maker does not manage
-- all queues is a new table: an existing one may contain messages that were archived before, such as an archive that
-- was renamed. Raises 42501.
create or replace function spanmq_call.create_queue(
    queue_name text, partitioned boolean, unlogged boolean, of_caller uuid, details jsonb default '{}'
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    made record;
    maker name := spanmq_core.take_caller(of_caller);
    manages_all boolean := has_function_privilege(maker, 'spanmq_call.may_manage()', 'execute');
begin
    perform pgmq.validate_queue_name(queue_name);
    perform spanmq_core.raise_if(not manages_all
                                 and to_regclass(format('pgmq.%I', pgmq.format_table_name(queue_name, 'a'))) is not null
       and not exists (select from spanmq_core.queue q where q.folded_name = lower(queue_name collate "C")),
        format('there is a table pgmq.%s already', pgmq.format_table_name(queue_name, 'a')),
        'Choose another name. A role that may manage all queues can make this queue.', '42501');
    select * into made from spanmq_core.create_queue(queue_name, partitioned, unlogged);
    if made.is_new then
        perform spanmq_core.give_to_maker(made.this, maker);
        perform spanmq_core.record_change(
            maker::text, case when partitioned then 'create_partitioned' when unlogged then 'create_unlogged'
                         else 'create' end, queue_name, details);
    end if;
    return made.is_new;
end $$;

-- Raises MQ001 where what a queue of this name is made of can't have its names, for something else has them: queue
-- x_msg_id_seq has the name of the sequence of queue x. A table with the name of the archive is taken for it
-- (make_archive).
create or replace function spanmq_core.check_names(folded_name text, is_subscription boolean) returns void
language plpgsql stable as $$
declare
    archive regclass := to_regclass(format('pgmq.%I', 'a_' || folded_name));
    taken regclass;
begin
    select c.oid into taken from pg_class c
        where c.relnamespace = 'pgmq'::regnamespace and (
            c.relname = 'q_' || folded_name
            or c.relname = 'q_' || folded_name || '_msg_id_seq' and not is_subscription
            -- As long as a name may be.
            or c.relname = ('a_' || folded_name || '_archived_at_idx')::name
               and not exists (select from pg_index i where i.indexrelid = c.oid and i.indrelid = archive)
            or c.oid = archive and c.relkind not in ('r', 'p'))
        order by c.relname limit 1;
    perform spanmq_core.raise_as_pgmq(found, 'MQ001',
        format('queue %s can''t be made: there is %s already', folded_name, taken),
        'Choose another name, or drop or rename the existing object.');
end $$;

-- Makes a queue with its archive; of its own, or of `parent` for a subscription, are the ids and the log.
create or replace function spanmq_core.make_queue(
    queue_name text, partitioned boolean, unlogged boolean, parent spanmq_core.queue
) returns spanmq_core.queue
language plpgsql as $$
declare
    this spanmq_core.queue;
    q_name text := pgmq.format_table_name(queue_name, 'q');
    a_name text := pgmq.format_table_name(queue_name, 'a');
    is_subscription boolean := parent.queue_id is not null;
begin
    perform spanmq_core.check_names(lower(queue_name collate "C"), is_subscription);
    this.queue_id := nextval(pg_get_serial_sequence('spanmq_core.queue', 'queue_id'));
    if is_subscription then
        execute format('create view spanmq_core.log_%s as select * from spanmq_core.log_%s', this.queue_id,
                       parent.queue_id);
    else
        execute format('create sequence pgmq.%I', q_name || '_msg_id_seq');
        execute format('create %s table spanmq_core.log_%s (msg_id bigint not null, enqueued_at timestamptz not null,'
                       ' message jsonb, headers jsonb)',
                       case when unlogged then 'unlogged' end, this.queue_id);
    end if;
    perform spanmq_core.close_relation(format('spanmq_core.log_%s', this.queue_id)::regclass, '{}');
    perform spanmq_core.make_archive(a_name);
    this.queue_view := spanmq_core.make_view(this.queue_id, q_name);
    this.ids := coalesce(parent.ids, to_regclass(format('pgmq.%I', q_name || '_msg_id_seq')));
    insert into spanmq_core.queue (queue_id, name, is_partitioned, is_unlogged, ids, queue_view, archive,
                                   is_subscription, uses_priority,
                              uses_limits)
        overriding system value
        values (this.queue_id, queue_name, partitioned, unlogged, this.ids,
                this.queue_view, format('pgmq.%I', a_name)::regclass, is_subscription,
                coalesce(parent.uses_priority, false), coalesce(parent.uses_limits, false))
        returning * into this;
    insert into spanmq_core.bound (queue_id, number, from_id, due_from) values (this.queue_id, 0, 0, '-infinity');
    if not is_subscription then
        perform spanmq_core.close_relation(this.ids);
        perform spanmq_core.create_segment(this.queue_id, 1, this.segment_size, true);
    end if;
    insert into spanmq_core.lock (queue_id, what)
        select this.queue_id, w from unnest(array['alone', 'room', 'rate', 'segment', 'subscriptions', 'groups']) w
        on conflict do nothing;
    perform spanmq_core.open_relations(this);
    return this;
end $$;

-- Creates the table of an archive, or uses an existing one. Raises 42501 if the existing one is not the schema owner's,
-- who would run its triggers.
create or replace function spanmq_core.make_archive(a_name text) returns void
language plpgsql as $$
declare
    is_new boolean := to_regclass(format('pgmq.%I', a_name)) is null;
begin
    execute format('create table if not exists pgmq.%I (msg_id bigint primary key, read_ct int not null default 0,'
                   ' enqueued_at timestamptz not null default now(), last_read_at timestamptz,'
                   ' archived_at timestamptz not null default now(), vt timestamptz not null, message jsonb,'
                   ' headers jsonb)', a_name);
    perform spanmq_core.check_archive(format('pgmq.%I', a_name)::regclass);
    if is_new and not spanmq_core.is_following() then
        perform spanmq_core.close_relation(format('pgmq.%I', a_name)::regclass);
    end if;
    -- BRIN: the archive only grows at its end, so an index of a few pages finds a time, and costs an ack next to
    -- nothing.
    execute format('create index if not exists %I on pgmq.%I using brin (archived_at) with (autosummarize = on)',
                   a_name || '_archived_at_idx', a_name);
end $$;

-- The same as create().
create or replace function pgmq.create_non_partitioned(queue_name text) returns void
language plpgsql as $$
begin
    perform spanmq_call.create_queue(queue_name, false, false, spanmq_call.prove_caller());
end $$;

-- Creates a queue, unless one of that name exists. Raises MQ001 for an invalid name, 42501 without the right to make
-- queues.
create or replace function pgmq.create(queue_name text) returns void
language plpgsql as $$
begin
    perform spanmq_call.create_queue(queue_name, false, false, spanmq_call.prove_caller());
end $$;

-- Creates a queue that writes no WAL and is empty after a crash of the server. Its archive and its ids are logged.
create or replace function pgmq.create_unlogged(queue_name text) returns void
language plpgsql as $$
begin
    perform spanmq_call.create_queue(queue_name, false, true, spanmq_call.prove_caller());
end $$;

-- Creates a queue whose segments have partition_interval ids (or roughly one for each such time), and whose archive is
-- kept for retention_interval (a number of ids, or a time). Unread messages are never dropped. Needs no pg_partman,
-- because every log has segments. premake is only checked, because segments are always created ahead.
create or replace function pgmq.create_partitioned(
    queue_name text, partition_interval text default '10000', retention_interval text default '100000',
    premake integer default 4
) returns void
language plpgsql as $$
begin
    perform spanmq_call.create_partitioned_queue(queue_name, partition_interval, retention_interval, premake,
                                                 spanmq_call.prove_caller());
end $$;

create or replace function spanmq_call.create_partitioned_queue(
    queue_name text, partition_interval text, retention_interval text, premake integer, of_caller uuid
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.raise_as_pgmq(premake is null or premake < 1, 'MQ002',
        format('premake must be at least 1, got %s', premake), 'Omit it: it has no effect here.');
    perform spanmq_core.parse_interval(partition_interval, 'partition_interval');
    perform spanmq_core.parse_interval(retention_interval, 'retention_interval');
    if spanmq_call.create_queue(queue_name, true, false, of_caller,
        jsonb_build_object('partition_interval', partition_interval, 'retention_interval', retention_interval)) then
        perform spanmq_core.set_retention(spanmq_core.find_queue(queue_name), partition_interval, retention_interval);
    end if;
end $$;

-- Raises MQ002 unless the text is a positive number of ids or a positive interval.
create or replace function spanmq_core.parse_interval(given text, what text) returns void
language plpgsql stable as $$
begin
    if given ~ '^[[:space:]]*[0-9]{1,18}[[:space:]]*$' and given::bigint > 0
        or given !~ '^[[:space:]]*-?[0-9]+[[:space:]]*$' and given::interval > interval '0' then
        return;
    end if;
    raise invalid_datetime_format;
exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
    raise exception '% must be a positive number of messages or interval, got: %', what, given
        using errcode = 'MQ002', hint = 'Such as 10000 or 1 day.';
end $$;

create or replace function spanmq_core.set_retention(this spanmq_core.queue, segments text, retention text) returns void
language plpgsql as $$
begin
    update spanmq_core.queue q set
        segment_size = case
        when segments ~ '^[[:space:]]*[0-9]+[[:space:]]*$' then least(1048576, ceil(segments::bigint / 256.0) * 256)
        else q.segment_size end,
        retention_count = case when retention ~ '^[[:space:]]*[0-9]+[[:space:]]*$' then retention::bigint end,
        retention_interval = case when retention !~ '^[[:space:]]*[0-9]+[[:space:]]*$' then retention::interval end
        where q.queue_id = this.queue_id;
    perform spanmq_core.end_quiet(this.queue_id);
end $$;

-- In PGMQ, this partitions the archive by pg_partman. Here it sets how long the archive is kept, and moves no row.
create or replace function spanmq_call.convert_archive_partitioned(
    table_name text, partition_interval text default '10000', retention_interval text default '100000',
    leading_partition integer default 10
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.parse_interval(partition_interval, 'partition_interval');
    perform spanmq_core.parse_interval(retention_interval, 'retention_interval');
    if not exists (select from spanmq_core.queue q where q.folded_name = lower(table_name collate "C")) then
        raise notice 'Table % does not exists', pgmq.format_table_name(table_name, 'a');
        return;
    end if;
    perform spanmq_core.set_retention(spanmq_core.find_queue(table_name), '', retention_interval);
end $$;

-- The queues on which the caller has a right.
create or replace function pgmq.list_queues() returns setof pgmq.queue_record
language plpgsql as $$
begin
    return query select q.queue_name, q.is_partitioned, q.is_unlogged, q.created_at from spanmq_call.known_queues() q
        where spanmq_call.may(q.queue_id, 'send') or spanmq_call.may(q.queue_id, 'look')
           or spanmq_call.gains(q.queue_name, q.queue_id, 'send')
           or spanmq_call.gains(q.queue_name, q.queue_id, 'look');
end $$;

-- Does nothing, and warns, as in PGMQ.
create or replace function pgmq.detach_archive(queue_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pgmq.format_table_name(queue_name, 'a');
    raise warning 'detach_archive(queue_name) is deprecated and is a no-op. It will be removed in PGMQ v2.0. Archive'
                  ' tables are no longer member objects.';
end $$;

-- In PGMQ, this creates an index for grouped reads. Here every queue has one, and only the existence of the queue is
-- checked.
create or replace function spanmq_call.create_fifo_index(queue_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform spanmq_core.find_queue(queue_name);
end $$;

-- Does nothing: every queue can be read by groups.
create or replace function pgmq.create_fifo_indexes_all() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    return;
end $$;
