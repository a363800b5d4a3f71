-- since 0.1.0
-- Which messages of an archive, or which dead letters, a lake has. Once a lake is noted here, retention deletes only what it has.
create table spanmq_core.archive_export (
    queue_id int not null references spanmq_core.queue on delete cascade,
    lake text not null,
    of_table text not null default 'archive' check (of_table in ('archive', 'dead_letters')),
    ids int8multirange not null,
    exported_at timestamptz not null default clock_timestamp(),
    primary key (queue_id, of_table, lake)
);
