-- since 0.1.0
-- The messages that retention has deleted from an archive, so that streams that had not read them can report it. See
-- functions/archive_gone.sql.
create table spanmq_core.archive_gone (
    queue_id int primary key references spanmq_core.queue on delete cascade,
    system_id bigint not null,         -- of the server whose transactions these are: after a restore they mean nothing
    gone_at timestamptz,               -- when the youngest of the deleted was archived
    newest_writer bigint,              -- the newest transaction that wrote one of them
    -- Among the deleted messages, those that are not seen from this position, which is a minute or two old: their transactions,
    -- [writer, archived_at]. Usually none: deleted messages are old, and only a transaction that was open for longer
    -- than the retention can have archived them since.
    known_from jsonb not null,
    late jsonb not null default '[]',
    next_from jsonb not null,          -- takes the place of known_from in a minute
    moved_at timestamptz not null default clock_timestamp()
);
