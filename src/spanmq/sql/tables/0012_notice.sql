-- What has been announced about queues that need attention, so that a restart does not announce it again, and several
-- processes announce it once: see functions/operate/notice.sql.
create table spanmq_core.notice (
    target text primary key check (octet_length(target) between 1 and 200),
    held_until timestamptz not null,       -- one process compares and sends until then
    used_at timestamptz not null,
    announced jsonb not null default '[]'
) with (fillfactor = 50);
