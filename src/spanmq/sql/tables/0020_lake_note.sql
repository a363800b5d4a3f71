-- The newest export of a lake that this database has noted: a lake that lacks it was set back to an earlier time, or is
-- a copy that was left behind. chain is the line of positions that token belongs to: copies of a lake share it.
alter table spanmq_core.archive_export add column number bigint, add column token uuid, add column chain uuid;

-- The transaction that wrote the row; null in rows of 0.1.0. In a database that was restored from a dump, all rows have
-- other writers, so snapshots of before mean nothing there.
alter table spanmq_core.position add column written_by xid;

-- What a lake had when it was refused. Retention waits for its ids, which are none then.
alter table spanmq_core.archive_export_ids add column refused_ids int8multirange not null default '{}';

-- Whether the writer records each of its epochs, also those without rows; and since when it has been published.
alter table spanmq_core.bulk_ledger
    add column records_all boolean not null default false,
    add column published_at timestamptz not null default now();

-- The session that may export into a lake: its process, and an advisory lock that it holds as long as it lasts.
create table spanmq_core.export_session (
    queue_id int not null,
    lake text not null,
    of_table text not null,
    pid int not null,
    lock_number bigint not null,
    primary key (queue_id, of_table, lake)
);
