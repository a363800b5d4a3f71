-- The start of every installation: one at a time, under fixed settings.
--
-- The lock is taken first, so that all that follows sees what the previous one committed; this needs READ COMMITTED.
-- These settings last to the end of the transaction, which may be the caller's: end.sql restores it.
do $begin$
begin
    if pg_catalog.current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the spanmq schema cannot be changed in a % transaction',
            pg_catalog.current_setting('transaction_isolation')
            using errcode = 'MQ003',
            hint = 'Use READ COMMITTED: a snapshot taken before the lock does not show what another installer did.';
    end if;
    perform pg_catalog.pg_advisory_xact_lock(:lock_key);
    perform pg_catalog.set_config('spanmq.outer_' operator(pg_catalog.||) name, pg_catalog.current_setting(name), true)
        from pg_catalog.unnest(array['search_path', 'client_min_messages', 'check_function_bodies',
                                     'quote_all_identifiers', 'intervalstyle', 'role',
                                  'lock_timeout']) name;
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
            pg_catalog.set_config('client_min_messages', 'warning', true),
            -- As settings.sql says.
            pg_catalog.set_config('quote_all_identifiers', 'off', true),
            pg_catalog.set_config('intervalstyle', 'postgres', true),
            -- Functions call each other and read tables of later files.
            pg_catalog.set_config('check_function_bodies', 'off', true);
end
$begin$;
