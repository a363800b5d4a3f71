-- Creates a table of the lake, or adds columns to it that it lacks, by one snapshot. %(columns)s has id, place, name
-- and type of each of its columns, and %(added)s the ids of those to add. The table is partitioned by the columns that
-- %(partitions)s has the ids of.

with newest as (
    select s.* from {catalogue}.ducklake_snapshot s order by s.snapshot_id desc limit 1
), known as (
    select t.table_id from {catalogue}.ducklake_table t
    join {catalogue}.ducklake_schema s on s.schema_id = t.schema_id and s.schema_name = 'main'
    where t.table_name = %(table)s::text and t.end_snapshot is null and s.end_snapshot is null
), this as (
    select coalesce(k.table_id, n.next_catalog_id) as table_id, k.table_id is null as is_new, n.snapshot_id + 1 as now,
        n.schema_version + 1 as version, n.next_catalog_id, n.next_file_id
    from newest n left join known k on true
), snapshot as (
    insert into {catalogue}.ducklake_snapshot
    select t.now, pg_catalog.now(), t.version, t.next_catalog_id + case when t.is_new then 2 else 0 end, t.next_file_id
    from this t
), changes as (
    insert into {catalogue}.ducklake_snapshot_changes (snapshot_id, changes_made, author)
    select t.now, case when t.is_new then pg_catalog.format('created_table:"main"."%%s"', %(table)s::text)
                  else pg_catalog.format('altered_table:%%s', t.table_id) end, 'spanmq'
    from this t
), versions as (
    insert into {catalogue}.ducklake_schema_versions select t.now, t.version, t.table_id from this t
), made as (
    insert into {catalogue}.ducklake_table
    select t.table_id, pg_catalog.gen_random_uuid(), t.now, null, 0, %(table)s::text, %(table)s::text || '/', true
    from this t where t.is_new
), partition as (
    insert into {catalogue}.ducklake_partition_info
    select t.table_id + 1, t.table_id, t.now, null from this t where t.is_new
), partitioned_by as (
    insert into {catalogue}.ducklake_partition_column
    select t.table_id + 1, t.table_id, p.place - 1, p.id, 'identity'
    from this t, pg_catalog.unnest(%(partitions)s::bigint[]) with ordinality p (id, place) where t.is_new
), stats as (
    insert into {catalogue}.ducklake_table_stats select t.table_id, 0, 0, 0 from this t where t.is_new
)
insert into {catalogue}.ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type,
    default_value, nulls_allowed, default_value_type, default_value_dialect)
select c.id, t.now, t.table_id, c.place, c.name, c.type, 'NULL', true, 'literal', 'duckdb'
from this t, pg_catalog.jsonb_to_recordset(%(columns)s::jsonb) c (id bigint, place bigint, name text, type text)
where c.id = any (%(added)s::bigint[]);
