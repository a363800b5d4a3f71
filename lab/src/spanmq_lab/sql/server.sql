-- The server's own figures: WAL written in total, a session's process id, from which the server's is found, and the
-- number of connections for ordinary roles.
select current_setting('server_version') as version,
       case when pg_is_in_recovery() then null else pg_current_wal_lsn() - '0/0'::pg_lsn end as wal_bytes,
       pg_backend_pid() as process_id,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as connections
