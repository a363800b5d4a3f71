-- The state of this database, as one row. Reads catalogs only: needs no right on our schemas.
select
    pg_catalog.current_setting('server_version_num')::int as server_version,
    pg_catalog.pg_is_in_recovery() as is_standby,
    pg_catalog.current_setting('transaction_read_only')::boolean as is_read_only,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create') as may_create_schemas,
    (select count(*) = 4 from pg_catalog.pg_namespace where nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core'))
    as has_schemas,
    -- Both are read next, with the rights of the role that installs: not a view, or a table that runs code of its
    -- owner.
    (
        select count(*) = 2 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'spanmq_core' and c.relname in ('migration', 'release') and c.relkind = 'r'
            and not c.relhasrules and not c.relrowsecurity and not c.relhassubclass
            and not exists (select from pg_catalog.pg_index i
                            where i.indrelid = c.oid and (i.indexprs is not null or i.indpred is not null))
            and not exists (select from pg_catalog.pg_statistic_ext s where s.stxrelid = c.oid)
            and not exists (select from pg_catalog.pg_attribute a
                            where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                                and (a.attgenerated <> '' or a.atttypid >= 16384))
    ) as has_ledger,
    exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgmq' and c.relname = 'meta' and c.relkind in ('r', 'p')
    ) as has_upstream_tables,
    exists (
        select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgmq' and c.relname ~ '^[qa]_' and c.relkind in ('r', 'p')
    ) as has_upstream_queues,
    -- Not an extension without members, as `spanmq schema extension` registers it.
    (
        select e.extversion from pg_catalog.pg_extension e
        where e.extname = 'pgmq' and exists (
            select from pg_catalog.pg_depend d join pg_catalog.pg_class c on c.oid = d.objid and c.relname = 'meta'
            where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.deptype = 'e'
                and d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass and d.refobjid = e.oid)
    ) as extension_version
