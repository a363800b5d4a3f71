-- The settings that affect the catalogs' definitions of our objects, to the end of the transaction: verify compares
-- them with those that an installation saw, possibly in a session with other settings. begin.sql sets the same.
select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
       pg_catalog.set_config('quote_all_identifiers', 'off', true),
       pg_catalog.set_config('intervalstyle', 'postgres', true)
