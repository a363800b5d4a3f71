-- Streams over archives. A position is a snapshot: what is seen from it has been read. Ids are not sufficient: messages
-- are archived in any order, and their transactions commit late. Neither is "all below the oldest transaction": any
-- open transaction would block the stream. The messages between two positions are read in the order of ids, so that a
-- part of them can be bounded.
--
-- A row contains the transaction that wrote it, but not the one of which that was a part (of a savepoint, or a block
-- that catches errors); and a snapshot names whole transactions only. But every row of a transaction has its beginning
-- as archived_at. So a row that was archived at the very time at which a transaction began that was open at a position
-- is not seen from there, whichever transaction wrote it: it comes from a later position, when that transaction has
-- ended.

-- The position as of now, of an archive that the caller may read (42501). is_gone: retention has deleted messages that
-- can't be seen from the position `from_position`. identity differs for archives of other servers, and for a later
-- archive of the same name. Raises MQ055 unless from_position has the `token` under which note_position() noted it
-- here, and for one that is ahead of this server's transactions; and in a database that was restored from a dump, where
-- all rows were written anew.
create or replace function spanmq_call.archive_position(
    queue text, from_position jsonb default null
) returns table (here jsonb, is_gone boolean, identity text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_archive(queue);
begin
    if from_position is not null then
        perform spanmq_core.check_position(from_position);
        if not exists (select from spanmq_core.position p where p.token = (from_position ->> 'token')::uuid
                       and p.queue_id = this.queue_id and coalesce(p.written_by, p.xmin) = p.xmin)
                or pg_snapshot_xmax((from_position ->> 'seen')::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot())
                then
            perform spanmq_core.raise_unknown_position(this.name);
        end if;
    end if;
    here := spanmq_core.position_now();
    is_gone := from_position is not null and spanmq_core.is_gone(this.queue_id, from_position);
    identity := (select format('%s/%s', c.system_identifier, this.queue_id) from pg_control_system() c);
    return next;
end $$;

-- The next qty messages after the id `after` between two positions (base null: from the first message on). last_id is
-- the id of the last one, and n their number. For the first piece (after 0), rest is the number of messages that
-- follow it. With max_bytes, the piece has fewer messages: their bodies and headers as text have at most that many
-- bytes, but it has at least one message. quantity is qty, lowered by this limit.
create or replace function spanmq_call.archive_piece(
    queue text, base jsonb, here jsonb, after bigint, qty integer, max_bytes bigint default null
) returns table (last_id bigint, n bigint, rest bigint, quantity integer)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_archive(queue);
    condition text := spanmq_core.between_positions(base, here);
    size bigint;
    bytes bigint := 0;
    place int := 0;
begin
    quantity := qty;
    if max_bytes < 1 then
        raise exception 'max_bytes must be at least 1, got: %', max_bytes using errcode = 'MQ002',
            hint = 'NULL is not a valid limit.';
    elsif max_bytes is not null then
        for size in execute format('select octet_length(t.message::text) + coalesce(octet_length(t.headers::text),'
                                   ' 0) from %s t'
                                   ' where t.msg_id > $1 and %s order by t.msg_id limit $2', this.archive, condition)
                                   using after, qty
        loop
            bytes := bytes + coalesce(size, 4);
            exit when bytes > max_bytes and place > 0;
            place := place + 1;
        end loop;
        if bytes > max_bytes then
            quantity := greatest(place, 1);
        end if;
    end if;
    -- One statement: what retention takes in between would be missed.
    execute format('select p.last_id, p.n, case when $1 = 0 and p.n = $2 then (select count(*) from %1$s t where'
                   ' t.msg_id > p.last_id and %2$s) else 0 end'
                   ' from (select max(f.msg_id) as last_id, count(*) as n'
                   '       from (select t.msg_id from %1$s t where t.msg_id > $1 and %2$s order by t.msg_id'
                   ' limit $2) f) p',
                   this.archive, condition)
        into last_id, n, rest using after, quantity;
    return next;
end $$;

-- The messages between two positions with ids over `after` up to last_id, as ranges of at most `size` messages. n is
-- the number of messages of a range. condition is an expression over a row `t` of the archive: it is true for messages
-- between the positions.
create or replace function spanmq_call.archive_ranges(queue text, base jsonb, here jsonb, after bigint, last_id bigint,
                                                      size integer)
returns table (first_id bigint, end_id bigint, n bigint, condition text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_archive(queue);
begin
    perform spanmq_core.raise_if((size > 0) is not true, format('size must be at least 1, got: %L', size),
                                 'It is the number of messages of a range.');
    condition := spanmq_core.between_positions(base, here);
    return query execute format(
        'select min(p.msg_id), max(p.msg_id), count(*), $4 from ('
        ' select t.msg_id, (row_number() over (order by t.msg_id) - 1) / $3 as part from %s t where t.msg_id > $1 and'
        ' t.msg_id <= $2 and %s) p'
        ' group by p.part order by p.part', this.archive, condition)
        using after, archive_ranges.last_id, size, condition;
end $$;

-- The position as of now. seen: the snapshot. since: every transaction of this database that it does not see began
-- after that, so archived_at bounds the search. starts, at, prepared: when the transactions of this database that were
-- open then began, see seen_from(); starts is null without the right to know.
create or replace function spanmq_core.position_now() returns jsonb
language plpgsql as $$
declare
    -- First the start times of the transactions, then the snapshot, a statement each: a transaction that is in neither
    -- has begun since.
    at_ timestamptz := clock_timestamp();
    since timestamptz := '-infinity';
    starts jsonb;
    prepared jsonb := '[]';
begin
    if pg_has_role(current_user, 'pg_read_all_stats', 'usage') then
        perform pg_stat_clear_snapshot();
        select coalesce(jsonb_agg(distinct a.xact_start), '[]'), least(at_, min(a.xact_start)) into starts, since
            from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid()
            and a.xact_start is not null;
    end if;
    -- The start of a prepared transaction is not known any more.
    select
        coalesce(jsonb_agg(jsonb_build_array(spanmq_core.full_id(p.transaction,
                                                                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint),
                                                                 p.prepared)), '[]'),
           least(since, min(p.prepared) - interval '1 day')
        into prepared, since from pg_prepared_xacts p where p.database = current_database();
    return jsonb_build_object('seen', pg_current_snapshot()::text, 'since', since, 'at', at_, 'starts', starts,
                              'prepared', prepared);
end $$;

-- The transaction that wrote a row `t`, in full, from its 32 bits: that within 2 billion of `near`. Numbers below 3 are
-- the system's own.
create or replace function spanmq_core.writer_of_row(near bigint) returns text
language sql immutable as $$
    select format('(case when t.xmin::text::bigint < 3 then 0 else greatest(%1$s - ((%1$s - t.xmin::text::bigint) &'
                  ' 4294967295), 0) end)', near + 2147483648)
$$;

-- The condition that a row `t` of an archive is seen from a position.
create or replace function spanmq_core.seen_from(here jsonb) returns text
language plpgsql stable as $$
declare
    seen pg_snapshot := (here ->> 'seen')::pg_snapshot;
    oldest bigint := pg_snapshot_xmin(seen)::text::bigint;
    writer text := spanmq_core.writer_of_row(pg_snapshot_xmax(seen)::text::bigint);
    visible text := format('pg_visible_in_snapshot(%s::text::xid8, %L)', writer, seen);
    open text;
begin
    if oldest = pg_snapshot_xmax(seen)::text::bigint then
        -- Nothing was open that had written.
        return visible;
    elsif here ->> 'starts' is null then
        open := 'true';
    else
        open := format('t.archived_at >= %L or t.archived_at = any (%L)', here ->> 'at',
                       array(select value::timestamptz from jsonb_array_elements_text(here -> 'starts')));
    end if;
    return format('(%s and not (%s > %s and (%s)%s))', visible, writer, oldest, open,
                  -- A number, whatever the caller gave: this becomes a part of a statement.
                  (select string_agg(format(' or %s > %s and t.archived_at <= %L', writer, (p ->> 0)::bigint, p ->> 1),
                                     '')
                   from jsonb_array_elements(here -> 'prepared') p));
end $$;

-- Raises MQ002 for what position_now() can't have given; what is in its parts their types say.
create or replace function spanmq_core.check_position(given jsonb) returns void
language plpgsql immutable as $$
begin
    if (given ->> 'seen' is null or given ->> 'since' is null or given ->> 'at' is null or not given ? 'starts'
            or jsonb_typeof(given -> 'prepared') is distinct from 'array'
            or jsonb_path_exists(given,
                                 'strict $.prepared[*] ? (@.type() != "array" || @.size() != 2 || @[0].type() !='
                                 ' "number" || @[1].type() != "string")')
       ) is not false then
        raise exception 'not the position of a stream: %', coalesce(left(given::text, 200), 'null')
            using errcode = 'MQ002', hint = 'spanmq.archive_position() returns positions.';
    end if;
end $$;

-- The condition that a row `t` of an archive is seen from a position, and not from `base` (null: nothing is).
create or replace function spanmq_core.between_positions(base jsonb, here jsonb) returns text
language plpgsql stable as $$
begin
    perform spanmq_core.check_position(here);
    if base is not null then
        perform spanmq_core.check_position(base);
    end if;
    if base is null then
        -- Rows of more than 2 billion transactions ago look like those to come.
        return format('(%s or t.archived_at < %L)', spanmq_core.seen_from(here),
                      (here ->> 'since')::timestamptz - interval '30 days');
    end if;
    -- Five minutes, for a clock that is set back.
    return format('(t.archived_at >= %L and %s and not %s)',
                  (base ->> 'since')::timestamptz - interval '5 minutes', spanmq_core.seen_from(here),
                  spanmq_core.seen_from(base));
end $$;

-- The queue of that name, with its archive as it is now.
create or replace function spanmq_core.find_archive(queue text) returns spanmq_core.queue
language plpgsql stable as $$
declare
    this spanmq_core.queue;
begin
    select * into this from spanmq_core.queue q where q.folded_name = lower(queue collate "C");
    if not found then
        perform spanmq_core.raise_not_found(queue);
    end if;
    this.archive := spanmq_core.archive_of(this);
    if this.archive is null then
        perform spanmq_core.raise_no_archive(this);
    end if;
    return this;
end $$;
