-- The objects in schema pgmq that belong to no extension and are kept.
select pg_describe_object('pg_class'::regclass, c.oid, 0) as name
from pg_class c
where c.relnamespace = 'pgmq'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S', 'c')
and not c.relispartition
    and c.oid not in (select d.objid from spanmq_adopt.doomed d where d.classid = 'pg_class'::regclass)
    and c.oid not in (select q.archive from spanmq_adopt.queue q where q.archive is not null)
    and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
                    and d.deptype in ('a', 'i')
                    and d.refclassid = 'pg_class'::regclass)
union all
select pg_describe_object('pg_proc'::regclass, f.oid, 0) from spanmq_adopt.own_function f
union all
select pg_describe_object('pg_type'::regclass, t.oid, 0) from pg_type t where t.typnamespace = 'pgmq'::regnamespace
and t.typtype in ('e', 'd', 'r')
order by 1
