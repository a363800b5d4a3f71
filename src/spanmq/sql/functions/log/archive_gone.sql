-- The retention of archives, and how streams over archives detect it: exactly whether a message was deleted that they
-- had not read yet.

-- Deletes up to 10,000 messages from an archive that are past its retention; returns how many.
create or replace function spanmq_core.shorten_archive(this spanmq_core.queue, drawn bigint) returns bigint
language plpgsql as $$
declare
    known spanmq_core.archive_gone;
    gone record;
begin
    -- One that was renamed is its owner's to prune.
    if this.retention_count is null and this.retention_interval is null
        or spanmq_core.archive_of(this) is distinct from this.archive then
        return 0;
    end if;
    begin
        perform spanmq_core.hold_archive(this.folded_name, this.archive, '{trigger,foreign key,child}');
    exception when insufficient_privilege then
        -- The rest of maintenance goes on; doctor() tells.
        raise warning 'maintain() deletes nothing from the archive of queue "%": %', this.name, sqlerrm;
        return 0;
    end;
    known := spanmq_core.known_gone(this.queue_id);
    -- The condition twice: in an adopted archive, which may be partitioned, one ctid occurs in every partition.
    execute format('with t as (delete from %1$s'
                   ' where ctid = any (array(select ctid from %1$s where %2$s limit 10000 for update skip locked)) and'
                   ' %2$s returning archived_at, xmin)'
                   ' select count(*) as n, max(t.archived_at) as gone_at, max(%3$s) as newest_writer,'
                   ' jsonb_agg(distinct jsonb_build_array(%3$s, t.archived_at)) filter (where not %4$s) as late from t',
                   this.archive,
                   case when this.retention_count is not null then 'msg_id <= $1' else 'archived_at < $2' end
                   -- Messages that a lake is to export are kept until it has them.
                   || format(' and not exists (select from spanmq_core.archive_export e where e.queue_id = %s and'
                             ' e.of_table = ''archive'' and not exists ('
                             'select from spanmq_core.archive_export_ids i where i.queue_id = e.queue_id and i.of_table'
                             ' = e.of_table'
                             ' and i.lake = e.lake and i.block = msg_id >> 15 and i.ids @> msg_id))', this.queue_id),
                   -- Mostly old ones, and none that is much newer than this look.
                   spanmq_core.writer_of_row(pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1073741824),
                   spanmq_core.seen_from(known.known_from))
        into gone using drawn - this.retention_count, spanmq_core.before(now(), this.retention_interval);
    if gone.n = 0 then
        return 0;
    end if;
    update spanmq_core.archive_gone g
        set gone_at = greatest(g.gone_at, gone.gone_at), newest_writer = greatest(g.newest_writer, gone.newest_writer),
            late = g.late || coalesce(gone.late, '[]')
        where g.queue_id = this.queue_id returning * into known;
    if jsonb_array_length(known.late) > 1000 then
        perform spanmq_core.move_known(this.queue_id, spanmq_core.position_now());
    end if;
    return gone.n;
end $$;

-- The messages that were deleted before. Nothing if retention has just begun.
create or replace function spanmq_core.known_gone(this_queue int) returns spanmq_core.archive_gone
language plpgsql as $$
declare
    known spanmq_core.archive_gone;
    system bigint := (select c.system_identifier from pg_control_system() c);
begin
    delete from spanmq_core.archive_gone g where g.queue_id = this_queue and g.system_id <> system;
    select * into known from spanmq_core.archive_gone g where g.queue_id = this_queue;
    if not found then
        insert into spanmq_core.archive_gone (queue_id, system_id, known_from, next_from)
            values (this_queue, system, spanmq_core.position_now(), spanmq_core.position_now()) returning * into known;
    elsif known.moved_at < clock_timestamp() - interval '1 minute' then
        known := spanmq_core.move_known(this_queue, known.next_from);
    end if;
    return known;
end $$;

-- Goes on to know only what is not seen from a later position.
create or replace function spanmq_core.move_known(this_queue int, later jsonb) returns spanmq_core.archive_gone
language plpgsql as $$
declare
    known spanmq_core.archive_gone;
begin
    update spanmq_core.archive_gone g
        set known_from = later, late = spanmq_core.not_seen_from(g.late, later), next_from = spanmq_core.position_now(),
        moved_at = clock_timestamp()
        where g.queue_id = this_queue returning * into known;
    return known;
end $$;

-- Those of [[writer, archived_at], ...] that are not seen from a position.
create or replace function spanmq_core.not_seen_from(late jsonb, here jsonb) returns jsonb
language plpgsql stable as $$
declare
    found_ones jsonb;
begin
    execute format('select jsonb_agg(t.pair) from (select pair, ((pair ->> 0)::bigint & 4294967295)::text as xmin,'
                   ' (pair ->> 1)::timestamptz as archived_at'
                   ' from jsonb_array_elements($1) pair) t where not %s', spanmq_core.seen_from(here))
        into found_ones using late;
    return coalesce(found_ones, '[]');
end $$;

-- Whether retention has deleted messages of an archive that are not seen from a position. If that position is older
-- than the known deletions, and a transaction ended between both of which it is not known whether it archived messages:
-- whether it could have.
create or replace function spanmq_core.is_gone(this_queue int, here jsonb) returns boolean
language plpgsql stable as $$
declare
    gone spanmq_core.archive_gone;
    seen pg_snapshot := (here ->> 'seen')::pg_snapshot;
    known pg_snapshot;
begin
    select * into gone from spanmq_core.archive_gone g
        where g.queue_id = this_queue and g.system_id = (select c.system_identifier from pg_control_system() c);
    if not found then
        return false;
    elsif gone.newest_writer >= pg_snapshot_xmax(seen)::text::bigint
        or spanmq_core.not_seen_from(gone.late, here) <> '[]' then
        return true;
    end if;
    known := (gone.known_from ->> 'seen')::pg_snapshot;
    if pg_snapshot_xmax(seen) >= pg_snapshot_xmax(known) and here ->> 'starts' is not null and here -> 'prepared' = '[]'
            and not exists (select from pg_snapshot_xip(seen) x where pg_visible_in_snapshot(x, known)) then
        return false;
    end if;
    return coalesce(gone.gone_at >= (here ->> 'since')::timestamptz, false);
end $$;
