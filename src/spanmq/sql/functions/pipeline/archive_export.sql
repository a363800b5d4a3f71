-- Exports of archives and dead letters: retention waits for them.

-- Notes that a lake has these messages of a queue's archive, or (of_table dead_letters) the dead letters of these ids,
-- verified; with `blocks`, only the ids with id >> 15 among these are noted anew. From now on retention deletes only
-- what every lake noted for that table of the queue has. Raises MQ002; the right to settle is needed.
create or replace function spanmq_call.note_export(queue text, lake text, ids int8multirange,
                                                   of_table text default 'archive', blocks bigint[] default null)
returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
    blocks_max constant bigint := 10000000;
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
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.archive_export (queue_id, lake, of_table)
        values (this.queue_id, note_export.lake, note_export.of_table)
        on conflict on constraint archive_export_pkey do update set refused_at = null;
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

-- Notes that a lake is refused, since this database does not know its position: retention deletes nothing of that table
-- until the lake is exported into again, or forgotten. Raises MQ002.
create or replace function spanmq_call.refuse_export(
    queue text, lake text, of_table text default 'archive'
) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_call.note_export(queue, lake, '{}', of_table);
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
