-- Exports of archives and dead letters: retention waits for them.

-- Records that a lake has these messages of a queue's archive, or (of_table dead_letters) the dead letters of these
-- ids, and that this was verified. With `blocks`, only ids whose id >> 15 is one of these are recorded anew. From now
-- on, retention deletes from that table of the queue only rows that every recorded lake has. number is the number of
-- the newest export, and token its position, which must be known here; if they are null, the recorded ones stay.
-- Raises MQ002, and MQ055 for an unknown token; the right to settle is needed.
create or replace function spanmq_call.note_export(queue text, lake text, ids int8multirange,
                                                   of_table text default 'archive', blocks bigint[] default null,
                                                   number bigint default null, token uuid default null)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    blocks_max constant bigint := 10000000;
    line uuid;
begin
    perform spanmq_core.raise_if((lake is not null and ids is not null and of_table in ('archive', 'dead_letters'))
                                 is not true,
        format('a lake has a name, ids and a table, got: %s, %s ids and %s', coalesce(lake, 'null'),
               case when ids is null then 'no' else 'some' end,
               coalesce(of_table, 'null')), 'The table is archive or dead_letters.');
    perform spanmq_core.raise_if(
        (select sum(((upper(r) - 1) >> 15) - (lower(r) >> 15) + 1) > blocks_max or bool_or(lower_inf(r) or upper_inf(r))
         from unnest(note_export.ids) r),
        format('ids must be in at most %s blocks of 32768', blocks_max), 'Pass the ids that the lake has.');
    if note_export.token is not null then
        select p.chain into line from spanmq_core.position p
            where p.token = note_export.token and p.queue_id = this.queue_id;
        if not found then
            perform spanmq_core.raise_unknown_position(this.name);
        end if;
    end if;
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.archive_export as e (queue_id, lake, of_table, number, token, chain)
        values (this.queue_id, note_export.lake, note_export.of_table, note_export.number, note_export.token, line)
        on conflict on constraint archive_export_pkey do update set refused_at = null,
            number = coalesce(excluded.number, e.number), token = coalesce(excluded.token, e.token),
            chain = coalesce(excluded.chain, e.chain);
    delete from spanmq_core.archive_export_ids e
        where e.queue_id = this.queue_id and e.of_table = note_export.of_table and e.lake = note_export.lake
            and (note_export.blocks is null or e.block = any (note_export.blocks));
    insert into spanmq_core.archive_export_ids (queue_id, lake, of_table, block, ids)
        select this.queue_id, note_export.lake, note_export.of_table, b,
        range_agg(r * int8range(b << 15, (b + 1) << 15))
        from unnest(note_export.ids) r, generate_series(lower(r) >> 15, (upper(r) - 1) >> 15) b
        where note_export.blocks is null or b = any (note_export.blocks)
        group by b;
    perform spanmq_core.end_quiet(this.queue_id);
end $$;

-- Makes this session the only one that exports a table of the queue into a lake, until the session ends. Returns false
-- if another session is the only one. Any role may take an advisory lock, so a lock counts only if the recorded
-- process holds it, under a number that no other session knew before. Raises MQ002 for a lake without a name, and
-- another table.
create or replace function spanmq_call.hold_export(
    queue text, lake text, of_table text default 'archive'
) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    number bigint := hashtextextended(gen_random_uuid()::text, 0);
begin
    perform spanmq_core.raise_if((lake is not null and of_table in ('archive', 'dead_letters')) is not true,
        format('a lake has a name and a table, got: %s and %s', coalesce(lake, 'null'), coalesce(of_table, 'null')),
        'The table is archive or dead_letters.');
    perform spanmq_core.hold_queue(this), pg_try_advisory_lock(number);
    insert into spanmq_core.export_session as e (queue_id, lake, of_table, pid, lock_number)
        values (this.queue_id, hold_export.lake, hold_export.of_table, pg_backend_pid(), number)
        on conflict on constraint export_session_pkey
            do update set pid = excluded.pid, lock_number = excluded.lock_number
            where e.pid = pg_backend_pid()
               or not exists (select from pg_locks l
                              where l.locktype = 'advisory' and l.pid = e.pid and l.granted and l.objsubid = 1
                                and l.classid::bigint << 32 | l.objid::bigint = e.lock_number);
    if found then
        return true;
    end if;
    perform pg_advisory_unlock(number);
    return false;
end $$;

-- The newest export of a lake that this database has recorded. It is found by the token `held` of the lake's newest
-- export. For a lake that is unknown here, it is the export of the lake of which this one is a copy (noted_as). No
-- row: neither lake is known. refused_at is the time since which the lake itself has been refused.
create or replace function spanmq_call.noted_export(
    queue text, lake text, of_table text default 'archive', held uuid default null
) returns table (noted_as text, number bigint, token uuid, refused_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query select e.lake, e.number, e.token,
        (select r.refused_at from spanmq_core.archive_export r where r.queue_id = this.queue_id
            and r.of_table = noted_export.of_table and r.lake = noted_export.lake)
        from spanmq_core.archive_export e
        where e.queue_id = this.queue_id and e.of_table = noted_export.of_table
            and (e.lake = noted_export.lake
                 or e.chain = (select p.chain from spanmq_core.position p
                               where p.token = noted_export.held and p.queue_id = this.queue_id))
        order by e.lake = noted_export.lake and e.number is not null desc, e.number desc nulls last, e.lake
        limit 1;
end $$;

-- The ids that a lake had by its last note, also if it has been refused since, a row for each id >> 15; with `blocks`,
-- only of these.
create or replace function spanmq_call.exported_ids(
    queue text, lake text, of_table text default 'archive', blocks bigint[] default null
) returns table (block bigint, ids int8multirange)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    return query
        select i.block, i.ids + i.refused_ids from spanmq_core.archive_export_ids i
        where i.queue_id = this.queue_id and i.lake = exported_ids.lake and i.of_table = exported_ids.of_table
          and (blocks is null or i.block = any (blocks))
        order by i.block;
end $$;

-- Notes that a lake is refused: this database does not know its position, or the lake lacks exports that are noted
-- here. Retention deletes nothing of that table until the lake is accepted (note_export) or forgotten. Raises MQ002.
create or replace function spanmq_call.refuse_export(
    queue text, lake text, of_table text default 'archive'
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_call.note_export(queue, lake, '{}'::int8multirange, of_table, '{}'::bigint[]);
    update spanmq_core.archive_export_ids i set refused_ids = i.refused_ids + i.ids, ids = '{}'
        where i.queue_id = this.queue_id and i.lake = refuse_export.lake and i.of_table = refuse_export.of_table
            and i.ids <> '{}';
    update spanmq_core.archive_export e set refused_at = clock_timestamp()
        where e.queue_id = this.queue_id and e.lake = refuse_export.lake and e.of_table = refuse_export.of_table;
end $$;

-- Ends the wait of retention for a lake. Returns false if no lake of that name is recorded.
create or replace function spanmq_call.forget_export(queue text, lake text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.end_quiet(this.queue_id);
    delete from spanmq_core.archive_export_ids e where e.queue_id = this.queue_id and e.lake = forget_export.lake;
    delete from spanmq_core.archive_export e where e.queue_id = this.queue_id and e.lake = forget_export.lake;
    return found;
end $$;
