-- The state of this database, as one row. Reads catalogs only: needs no right on our schemas.
select
    pg_catalog.current_setting('server_version_num')::int as server_version,
    pg_catalog.pg_is_in_recovery() as is_standby,
    pg_catalog.current_setting('transaction_read_only')::boolean as is_read_only,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create') as may_create_schemas,
    (select count(*) = 4 from pg_catalog.pg_namespace where nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')) as has_schemas,
    exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'spanmq_core' and c.relname = 'release'
    ) as has_ledger,
    exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgmq' and c.relname = 'meta' and c.relkind in ('r', 'p')
    ) as has_upstream_tables,
    (select extversion from pg_catalog.pg_extension where extname = 'pgmq') as extension_version
