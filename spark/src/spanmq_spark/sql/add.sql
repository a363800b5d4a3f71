-- Adds files to a table of the lake, by one snapshot, and ends those of %(ended)s; returns the number of files added.
-- %(files)s has of each its path, rows, size, the size of its footer, the values of its partitions, and of each column
-- its id, the number of nulls, and the least and the greatest value as texts; null where they are not known.

with this as (
    select s.snapshot_id + 1 as now, s.schema_version, s.next_catalog_id, s.next_file_id, t.table_id, e.next_row_id,
        (select p.partition_id from {catalogue}.ducklake_partition_info p
         where p.table_id = t.table_id and p.end_snapshot is null
             and (select pg_catalog.array_agg(c.column_id order by c.partition_key_index)
                  from {catalogue}.ducklake_partition_column c
                  where c.partition_id = p.partition_id and c.table_id = p.table_id and c.transform = 'identity')
                 = %(partitions)s::bigint[]) as partition_id
    from {catalogue}.ducklake_table t
    join {catalogue}.ducklake_schema m on m.schema_id = t.schema_id and m.schema_name = 'main'
    join {catalogue}.ducklake_table_stats e on e.table_id = t.table_id
    cross join lateral (
        select s.* from {catalogue}.ducklake_snapshot s order by s.snapshot_id desc limit 1) s
    where t.table_name = %(table)s::text and t.end_snapshot is null and m.end_snapshot is null
), file as (
    select f.*, this.table_id, this.now, this.partition_id,
        this.next_file_id + pg_catalog.row_number() over (order by f.path) - 1 as id,
        this.next_row_id + pg_catalog.sum(f.rows) over (order by f.path) - f.rows as first_row
    from this, pg_catalog.jsonb_to_recordset(%(files)s::jsonb) f
        (path text, rows bigint, size bigint, footer bigint, partitions jsonb, stats jsonb)
), snapshot as (
    insert into {catalogue}.ducklake_snapshot
    select t.now, pg_catalog.now(), t.schema_version, t.next_catalog_id,
        t.next_file_id + (select pg_catalog.count(*) from file)
    from this t
), changes as (
    insert into {catalogue}.ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message)
    select t.now, pg_catalog.concat_ws(',',
            case when exists (select from file) then pg_catalog.format('inserted_into_table:%%s', t.table_id) end,
            case when %(ended)s::bigint[] <> '{{}}'
                then pg_catalog.format('deleted_from_table:%%s', t.table_id) end),
        'spanmq', %(message)s::text
    from this t
), ended as (
    update {catalogue}.ducklake_data_file d set end_snapshot = t.now
    from this t where d.data_file_id = any (%(ended)s::bigint[]) and d.end_snapshot is null
), ended_deletes as (
    update {catalogue}.ducklake_delete_file d set end_snapshot = t.now
    from this t where d.data_file_id = any (%(ended)s::bigint[]) and d.end_snapshot is null
), added as (
    insert into {catalogue}.ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
        file_format, record_count, file_size_bytes, footer_size, row_id_start, partition_id)
    select f.id, f.table_id, f.now, f.path, true, 'parquet', f.rows, f.size, f.footer, f.first_row, f.partition_id
    from file f
), partitioned as (
    insert into {catalogue}.ducklake_file_partition_value
    select f.id, f.table_id, p.place - 1, p.value
    from file f, pg_catalog.jsonb_array_elements_text(f.partitions) with ordinality p (value, place)
    where f.partition_id is not null
), column_stats as (
    select f.id, f.table_id, f.rows, c.*
    from file f, pg_catalog.jsonb_to_recordset(f.stats) c (column_id bigint, nulls bigint, low text, high text)
), file_stats as (
    insert into {catalogue}.ducklake_file_column_stats (data_file_id, table_id, column_id, value_count, null_count,
        min_value, max_value)
    select c.id, c.table_id, c.column_id, c.rows - c.nulls, c.nulls, c.low, c.high from column_stats c
), table_stats as (
    update {catalogue}.ducklake_table_stats e set record_count = e.record_count + f.rows,
        next_row_id = e.next_row_id + f.rows, file_size_bytes = e.file_size_bytes + f.size
    from (select f.table_id, pg_catalog.sum(f.rows) as rows, pg_catalog.sum(f.size) as size
          from file f group by f.table_id) f
    where e.table_id = f.table_id
)
select pg_catalog.count(*) from file;
