-- Restores the settings that begin.sql changed: the transaction may continue with the caller's own work.
do $end$
begin
    perform pg_catalog.set_config('role', pg_catalog.current_setting('spanmq.outer_role'), true),
            pg_catalog.set_config('search_path', pg_catalog.current_setting('spanmq.outer_search_path'), true),
            pg_catalog.set_config('quote_all_identifiers', pg_catalog.current_setting('spanmq.outer_quotes'), true),
            pg_catalog.set_config('intervalstyle', pg_catalog.current_setting('spanmq.outer_intervals'), true),
            pg_catalog.set_config('check_function_bodies', pg_catalog.current_setting('spanmq.outer_bodies'), true),
            pg_catalog.set_config('client_min_messages', pg_catalog.current_setting('spanmq.outer_messages'), true);
end
$end$;
