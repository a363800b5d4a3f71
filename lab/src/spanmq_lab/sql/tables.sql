-- The tables whose names begin so, with their indexes: bytes, and rows that are dead as far as the statistics know.
select n.nspname || '.' || c.relname as name,
       pg_total_relation_size(c.oid) as bytes,
       coalesce(s.n_dead_tup, 0) as dead_tuples
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_user_tables s on s.relid = c.oid
where c.relkind = 'r'
  and exists (select from unnest($1::text[]) prefix where starts_with(n.nspname || '.' || c.relname, prefix))
order by 2 desc, 1
