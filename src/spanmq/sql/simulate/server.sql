-- What the server says of itself: WAL written since ever, and a session's process, by which its own is found.
select current_setting('server_version') as version,
       case when pg_is_in_recovery() then null else pg_current_wal_lsn() - '0/0'::pg_lsn end as wal_bytes,
       pg_backend_pid() as process_id
