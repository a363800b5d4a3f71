-- For adopt.sql: the name of a column, or a null of its type where older versions of PGMQ have no such column.
create or replace function spanmq_core.column_or_null(source regclass, column_name text, type_name text) returns text
language sql stable as $$
    select coalesce((select pg_catalog.quote_ident(a.attname) from pg_catalog.pg_attribute a
                     where a.attrelid = source and a.attname = column_name and not a.attisdropped),
                    'null::' || type_name)
$$;
