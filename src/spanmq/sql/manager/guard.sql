-- Only in a printed script (spanmq schema sql): the checks that spanmq schema install makes from outside.
-- Raises MQ006 and changes nothing when the database is not what the script was printed for.
do $guard$
declare
    expected text[] := :expected;  -- the migrations that the script builds on
    found_there text[] := '{}';
begin
    if pg_catalog.current_setting('server_version_num')::int < 150000 then
        raise exception 'spanmq needs PostgreSQL 15 or newer, this is %', pg_catalog.current_setting('server_version')
            using errcode = 'MQ006', hint = 'Upgrade the server.';
    end if;
    if exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'pgmq' and c.relname = 'meta' and c.relkind in ('r', 'p')) then
        raise exception 'this database holds PGMQ'
            using errcode = 'MQ006', hint = 'Take its queues over with: spanmq schema adopt';
    end if;
    if exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
               where n.nspname = 'spanmq_core' and c.relname = 'migration') then
        execute 'select coalesce(array_agg(name order by name), ''{}'') from spanmq_core.migration' into found_there;
    end if;
    if found_there <> expected then
        raise exception 'this script was printed for another state of the spanmq schema'
            using errcode = 'MQ006',
                detail = pg_catalog.format('It needs the migrations {%s}; the database has {%s}.',
                                           pg_catalog.array_to_string(expected, ', '),
                                           pg_catalog.array_to_string(found_there, ', ')),
                hint = 'Print it with the version that the database has: spanmq schema sql --from VERSION';
    end if;
end
$guard$;
