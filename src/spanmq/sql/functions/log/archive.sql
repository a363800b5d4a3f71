-- Looking at what a queue leaves behind: its archive, and what it takes on disk.

-- The first qty archived messages with an id over `after`, in order of ids; with newest_first the last qty with an id
-- below `after` (0: of all), the newest one first. To read all of it, pass the last id of the previous page. Bodies and
-- headers of more than body_bytes_max bytes are left out (see cut()).
create or replace function spanmq_call.peek_archive(queue text, qty integer default 10, after bigint default 0,
                                                    body_bytes_max integer default null,
                                                    newest_first boolean default false)
returns table (msg_id bigint, read_ct integer, enqueued_at timestamptz, last_read_at timestamptz,
               archived_at timestamptz,
               vt timestamptz, message jsonb, headers jsonb)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_archive(queue);
begin
    perform spanmq_core.check_quantity(qty);
    perform spanmq_core.check_body_bytes(body_bytes_max);
    perform spanmq_core.raise_if(newest_first is null, 'newest_first cannot be NULL', 'Pass true or false.');
    return query execute format(
        'select a.msg_id, a.read_ct, a.enqueued_at, a.last_read_at, a.archived_at, a.vt, spanmq_core.cut(a.message,'
        ' $3), spanmq_core.cut(a.headers, $3)'
        ' from %s a where a.msg_id %s $1 order by a.msg_id %s limit $2', this.archive,
        case when newest_first then '<' else '>' end, case when newest_first then 'desc' else '' end)
        using case when newest_first and after <= 0 then 9223372036854775807 else after end, qty, body_bytes_max;
end $$;

-- The disk usage of a queue, as one row. segments, log_bytes: the segments of its log and their size. archive_bytes:
-- the size of its archive, with indexes and TOAST. unsettled: the number of its messages that are not settled.
-- state_bytes: the size of the tables with the state of messages, which all queues share. wal_bytes: all WAL that the
-- server has written, for the difference between two calls. The values are exact: the call reads sizes from the file
-- system, and counts rows.
create or replace function spanmq_call.storage(queue text)
returns table (segments bigint, log_bytes bigint, archive_bytes bigint, unsettled bigint, state_bytes bigint,
               wal_bytes bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    segments := (select count(*) from spanmq_core.segment s where s.queue_id = this.queue_id);
    -- A rewrite may have two more tables; the size of a table that is dropped at this moment is null.
    log_bytes := (
        select coalesce(sum(pg_total_relation_size(to_regclass(format('spanmq_core.%I', t.name)))), 0)
        from spanmq_core.segment s, unnest(array[s.log_name, s.copy_name, s.old_name]) t (name)
        where s.queue_id = this.queue_id and t.name is not null);
    -- A partitioned archive, of a queue that was adopted, is its partitions.
    archive_bytes := (select coalesce(sum(pg_total_relation_size(p.relid)), 0) from pg_partition_tree(this.archive) p);
    if archive_bytes = 0 then
        archive_bytes := pg_total_relation_size(this.archive);
    end if;
    unsettled := (select count(*) from spanmq_core.unsettled u where u.queue_id = this.queue_id);
    state_bytes := pg_total_relation_size('spanmq_core.state') + pg_total_relation_size('spanmq_core.later');
    wal_bytes := pg_wal_lsn_diff(
        case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end, '0/0');
    return next;
end $$;
