-- The files that a table of the lake has now of the queue %(queue)s, and of each the file that has the places of its
-- deleted rows.

select d.data_file_id, d.path, d.path_is_relative, d.begin_snapshot, x.path as deletes, x.path_is_relative as is_beside,
    coalesce(x.format, 'parquet') as format
from {catalogue}.ducklake_table t
join {catalogue}.ducklake_schema m on m.schema_id = t.schema_id and m.schema_name = 'main' and m.end_snapshot is null
join {catalogue}.ducklake_data_file d on d.table_id = t.table_id and d.end_snapshot is null
left join {catalogue}.ducklake_delete_file x on x.data_file_id = d.data_file_id and x.table_id = d.table_id
    and x.end_snapshot is null
where t.table_name = %(table)s::text and t.end_snapshot is null
    and exists (select from {catalogue}.ducklake_file_partition_value p
                where p.data_file_id = d.data_file_id and p.table_id = d.table_id and p.partition_key_index = 0
                    and p.partition_value = %(queue)s::text)
order by d.data_file_id;
