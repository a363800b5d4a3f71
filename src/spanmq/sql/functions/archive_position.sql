-- Streams over an archive. A position is a snapshot: what it sees has been read. Ids would not do: messages are archived in any order, and
-- who archives commits late. Nor would "all below the oldest transaction": one that stays open, anywhere, would hold the stream up.
-- What lies between two positions is read in the order of ids, so that a piece of it can be bounded.

-- The position as of now, of an archive that the caller may read (42501). since: every transaction that it does not see began after that, so
-- archived_at, which is when its transaction began, bounds where to look. is_gone: retention has deleted messages that who stands at a position
-- with `read_since` may not have had. identity tells this archive from those of other servers, and from a later one of the same name.
create or replace function pgmq.archive_position(
    queue text, read_since timestamptz default null, out seen text, out since timestamptz, out is_gone boolean, out identity text
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_archive(queue);
begin
    -- First the clocks of the transactions, then the snapshot, a statement each: who is neither here nor there has begun since.
    since := clock_timestamp();
    perform pg_stat_clear_snapshot();
    if pg_has_role(current_user, 'pg_read_all_stats', 'usage') then
        since := least(since, (select min(a.xact_start) from pg_stat_activity a where a.pid <> pg_backend_pid()),
                       (select min(p.prepared) - interval '1 day' from pg_prepared_xacts p));
    else
        since := '-infinity';
    end if;
    seen := pg_current_snapshot()::text;
    is_gone := coalesce((select u.archive_gone_at >= read_since from spanmq.upkeep u where u.queue_id = this.queue_id), false);
    identity := (select format('%s/%s', c.system_identifier, this.queue_id) from pg_control_system() c);
end $$;

-- The next qty messages after the id `after` between two positions (base null: from the first): up to which id, and how many.
create or replace function pgmq.archive_piece(
    queue text, base text, base_since timestamptz, seen text, since timestamptz, after bigint, qty integer,
    out last_id bigint, out n bigint
)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_archive(queue);
begin
    execute format('select max(p.msg_id), count(*) from (select t.msg_id from %s t where t.msg_id > $1 and %s order by t.msg_id limit $2) p',
                   this.archive, spanmq.between_positions(base, base_since, seen, since))
        into last_id, n using after, qty;
end $$;

-- The messages between two positions with ids over `after` up to last_id, as ranges of at most `size` messages: how many each has, and the
-- condition on a row `t` of the archive that tells those of the positions from others.
create or replace function pgmq.archive_ranges(
    queue text, base text, base_since timestamptz, seen text, since timestamptz, after bigint, last_id bigint, size integer
)
returns table (first_id bigint, end_id bigint, n bigint, condition text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq.queue := spanmq.find_archive(queue);
begin
    condition := spanmq.between_positions(base, base_since, seen, since);
    return query execute format(
        'select min(p.msg_id), max(p.msg_id), count(*), $4 from ('
        ' select t.msg_id, (row_number() over (order by t.msg_id) - 1) / $3 as part from %s t where t.msg_id > $1 and t.msg_id <= $2 and %s) p'
        ' group by p.part order by p.part', this.archive, condition)
        using after, archive_ranges.last_id, size, condition;
end $$;

-- The condition that a row `t` of an archive is seen from a position, and not from `base` (null: nothing is).
create or replace function spanmq.between_positions(base text, base_since timestamptz, seen text, since timestamptz) returns text
language plpgsql immutable as $$
declare
    near bigint := pg_snapshot_xmax(seen::pg_snapshot)::text::bigint;
    -- The writer's id in full, from its 32 bits: that within 2 billion of the position. Numbers below 3 are the system's own.
    writer text := format('(case when t.xmin::text::bigint < 3 then 0 else greatest(%1$s - ((%1$s - t.xmin::text::bigint) & 4294967295), 0)'
                          ' end)::text::xid8', near + 2147483648);
begin
    if base is null then
        -- Rows of more than 2 billion transactions ago look like those to come.
        return format('(pg_visible_in_snapshot(%s, %L) or t.archived_at < %L)', writer, seen, since - interval '30 days');
    end if;
    -- Five minutes, for a clock that is set back.
    return format('(t.archived_at >= %L and pg_visible_in_snapshot(%s, %L) and not pg_visible_in_snapshot(%s, %L))',
                  base_since - interval '5 minutes', writer, seen, writer, base);
end $$;

-- The queue whose archive the caller may read: that need not be who may look into the queue.
create or replace function spanmq.find_archive(queue text) returns spanmq.queue
language plpgsql stable as $$
declare
    this spanmq.queue;
begin
    select * into this from spanmq.queue q where q.folded_name = lower(queue);
    if not found or not spanmq.may_see(this.queue_view, this.archive) then
        perform spanmq.raise_not_found(queue, 'select');
    end if;
    if not has_table_privilege(spanmq.caller(), this.archive, 'select') then
        raise exception 'permission denied for the archive of queue %', this.name
            using errcode = '42501', hint = format('grant select on %s to %I', this.archive, spanmq.caller());
    end if;
    return this;
end $$;
