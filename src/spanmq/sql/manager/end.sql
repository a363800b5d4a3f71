-- Restores the settings that begin.sql changed: the transaction may continue with the caller's own work.
do $end$
begin
    perform pg_catalog.set_config(name, pg_catalog.current_setting('spanmq.outer_' operator(pg_catalog.||) name), true)
        from pg_catalog.unnest(array['role', 'search_path', 'quote_all_identifiers', 'intervalstyle',
                                     'check_function_bodies', 'client_min_messages',
                                  'lock_timeout']) name;
end
$end$;
