-- Exports of archives and dead letters: retention waits for them.

-- Notes that a lake has these messages of a queue's archive, or (of_table dead_letters) the dead letters of these ids, verified. From now
-- on retention deletes only what every lake noted for that table of the queue has. Raises MQ002; the right to settle is needed.
create or replace function spanmq_call.note_export(queue text, lake text, ids int8multirange, of_table text default 'archive') returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    this spanmq_core.queue := spanmq_core.find_queue(queue);
begin
    perform spanmq_core.raise_if((lake is not null and ids is not null and of_table in ('archive', 'dead_letters')) is not true,
        format('a lake has a name, ids and a table, got: %s, %s ids and %s', coalesce(lake, 'null'), case when ids is null then 'no' else 'some' end,
               coalesce(of_table, 'null')), 'The table is archive or dead_letters.');
    perform spanmq_core.hold_queue(this);
    insert into spanmq_core.archive_export (queue_id, lake, of_table, ids)
        values (this.queue_id, note_export.lake, note_export.of_table, note_export.ids)
        on conflict on constraint archive_export_pkey do update set ids = excluded.ids, refused_at = null;
    perform spanmq_core.end_quiet(this.queue_id);
end $$;

-- Notes that a lake is refused, since this database does not know its position: retention deletes nothing of that table until the lake is exported
-- into again, or forgotten. Raises MQ002.
create or replace function spanmq_call.refuse_export(queue text, lake text, of_table text default 'archive') returns void
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
    delete from spanmq_core.archive_export e where e.queue_id = this.queue_id and e.lake = forget_export.lake;
    return found;
end $$;
