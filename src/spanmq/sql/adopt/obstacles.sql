-- The obstacles to a take-over, a row each: object, reason. None of these objects can be transferred to a view.
select o.object, o.reason from spanmq_adopt.obstacle o
union all
select format('queue %L', q.name) as object, 'its name is empty or longer than 47 bytes: drop or rename it' as reason
from spanmq_adopt.queue q
where q.source is not null
and (q.name = '' or length(q.name) > 47 or greatest(octet_length(q.name), octet_length(q.folded_name)) > 47)
union all
select format('queue %L', q.name),
'its table has a lower case that the collation of the database says, and here A to Z have one only: drop it, or move'
    ' its messages to a queue whose name has no other capital letters'
from spanmq_adopt.queue q where lower(q.name) <> lower(q.name collate "C")
union all
select format('queue %L', o.name),
format('it has a name that queue %L needs for itself here: drop or rename one of them', q.name)
from spanmq_adopt.queue q
join spanmq_adopt.queue o
on o.folded_name = any (array[q.folded_name || '_msg_id_seq', q.folded_name || '_archived_at_idx',
                              q.folded_name || '_pkey'])
where q.source is not null and o.source is not null
union all
select format('schema %s', n.nspname), 'it has objects, and spanmq needs this name: rename it'
from pg_namespace n
where n.nspname in ('spanmq', 'spanmq_call', 'spanmq_core')
    and exists (select from pg_depend d where d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid
                and d.deptype = 'n')
union all
select format('column %I of %s', a.attname, q.source),
    'messages have no columns of yours: drop it, and put its data into headers'
from spanmq_adopt.queue q join pg_attribute a on a.attrelid = q.source
where a.attnum > 0 and not a.attisdropped
    and a.attname not in ('msg_id', 'read_ct', 'enqueued_at', 'last_read_at', 'vt', 'message', 'headers')
union all
select format('table %s', q.source), format('it has ids below 0, from %s on', q.first_id)
from spanmq_adopt.queue q where q.first_id < 0
union all
select format('table %s', q.source), format('%s of its messages have an id that another has too', q.repeated)
from spanmq_adopt.queue q where q.repeated > 0
union all
select format('publication %I', p.pubname),
    format('%s is in it: take it out, and publish the archive, or read a subscription', q.source)
from spanmq_adopt.queue q join pg_publication_rel r on r.prrelid = q.source join pg_publication p on p.oid = r.prpubid
union all
select pg_describe_object('pg_proc'::regclass, p.oid, 0),
    format('it belongs to %I, and calls of spanmq''s functions could run it instead: drop it',
           pg_get_userbyid(p.proowner))
from pg_proc p join spanmq_adopt.own_function f on f.oid = p.oid
where not pg_has_role(p.proowner, current_user, 'usage')
union all
-- Whatever else depends on what will be dropped, and will not be dropped with it.
select distinct pg_describe_object(d.classid, d.objid, 0),
    format('depends on %s: drop it, and create it again afterwards', pg_describe_object(d.refclassid, d.refobjid, 0))
from pg_depend d
join spanmq_adopt.doomed x on x.classid = d.refclassid and x.objid = d.refobjid
cross join lateral (
    -- Rules, triggers, constraints and defaults are parts of their tables.
    select 'pg_class'::regclass as classid, coalesce(
        (select r.ev_class from pg_rewrite r where d.classid = 'pg_rewrite'::regclass and r.oid = d.objid),
        (select t.tgrelid from pg_trigger t where d.classid = 'pg_trigger'::regclass and t.oid = d.objid),
        (select k.conrelid from pg_constraint k where d.classid = 'pg_constraint'::regclass and k.oid = d.objid
         and k.conrelid <> 0),
        (select a.adrelid from pg_attrdef a where d.classid = 'pg_attrdef'::regclass and a.oid = d.objid),
        (select i.indrelid from pg_index i where d.classid = 'pg_class'::regclass and i.indexrelid = d.objid))
        as objid) whole
where d.deptype = 'n'
    and not exists (select from spanmq_adopt.doomed y where y.classid = d.classid and y.objid = d.objid)
    and not exists (select from spanmq_adopt.doomed y where y.classid = whole.classid and y.objid = whole.objid)
    and not exists (select from spanmq_adopt.relation y where d.classid = 'pg_class'::regclass and y.oid = d.objid)
order by 1, 2
