-- Last in the order of file names, for it takes the functions of all files from the public.
--
-- Rights. Whoever has USAGE on schema pgmq may call its functions; each looks at the caller's privileges on the view of the
-- queue: insert to send, update to receive, delete to settle, select to look, truncate to purge.
-- Topics belong to no queue: the owner of the schema grants the right to bind them.
revoke execute on function pgmq.bind_topic(text, text) from public;
revoke all on schema spanmq_core from public;
revoke all on all functions in schema spanmq_core from public;
-- Functions that a view calls are called by who reads the view.
grant execute on function spanmq_core.last_notified_at(int) to public;

do $$
begin
    grant usage on schema pgmq to pg_monitor;
    grant select on all tables in schema pgmq to pg_monitor;
    grant select on all sequences in schema pgmq to pg_monitor;
    alter default privileges in schema pgmq grant select on tables to pg_monitor;
    alter default privileges in schema pgmq grant select on sequences to pg_monitor;
exception when insufficient_privilege then
    raise notice 'pg_monitor was not given the right to look at queues';
end $$;
