-- Checks, from the catalogs alone, that reading and keeping PGMQ's tables runs code of PostgreSQL only. An owner of a
-- table can bring code into it in many ways, and each would run with the rights of the role that adopts: the planner
-- evaluates expressions of indexes and statistics even for a count. Runs under the locks of lock.sql.

-- The functions that a stored expression calls. pg_depend lacks those of PostgreSQL itself, and some of these run a
-- text as SQL (query_to_xml), so that the expression is read.
create function spanmq_adopt.functions_in(expression text) returns setof oid
language sql stable as $$
    select m[1]::oid from regexp_matches(expression, ':(?:funcid|opfuncid) (\d+)', 'g') m
    union
    select o.oprcode::oid
    from regexp_matches(expression, ':opno (\d+)', 'g') m join pg_operator o on o.oid = m[1]::oid
$$;

-- Whether an object belongs to an extension that a superuser installed.
create function spanmq_adopt.is_of_extension(class_id oid, object_id oid) returns boolean
language sql stable as $$
    select exists (
        select from pg_depend d join pg_extension e on e.oid = d.refobjid join pg_roles r on r.oid = e.extowner
        where d.classid = class_id and d.objid = object_id and d.refclassid = 'pg_extension'::regclass
            and d.deptype = 'e' and r.rolsuper)
$$;

-- The parts of the relations in these places that hold expressions or name types, operators or functions.
create function spanmq_adopt.parts(places text[])
returns table (classid oid, objid oid, expression text, relation oid, place text, folded_name text)
language sql stable as $$
    select p.classid, p.objid, p.expression, r.oid, r.place, r.folded_name
    from spanmq_adopt.relation r cross join lateral (
        select 'pg_class'::regclass::oid as classid, r.oid as objid,
               (select t.partexprs::text from pg_partitioned_table t where t.partrelid = r.oid) as expression
        union all
        select 'pg_attrdef'::regclass, a.oid, a.adbin::text from pg_attrdef a where a.adrelid = r.oid
        union all
        select 'pg_constraint'::regclass, k.oid, k.conbin::text from pg_constraint k
        where k.conrelid = r.oid and k.contype not in ('f', 't')
        union all
        select 'pg_class'::regclass, i.indexrelid, concat(i.indexprs::text, i.indpred::text) from pg_index i
        where i.indrelid = r.oid
        union all
        select 'pg_statistic_ext'::regclass, s.oid, s.stxexprs::text from pg_statistic_ext s where s.stxrelid = r.oid) p
    where r.place = any (places)
$$;

-- Notes the obstacles of the relations in these places, after their partitions and children.
create function spanmq_adopt.inspect(places text[]) returns void
language plpgsql as $$
begin
    with recursive below as (
        select r.oid, r.place, r.folded_name from spanmq_adopt.relation r where r.place = any (places)
        union
        select i.inhrelid, b.place, b.folded_name from below b join pg_inherits i on i.inhparent = b.oid)
    insert into spanmq_adopt.relation select * from below on conflict do nothing;

    with relation as (
        select r.place, r.folded_name, c.*, pg_describe_object('pg_class'::regclass, c.oid, 0) as object
        from spanmq_adopt.relation r join pg_class c on c.oid = r.oid where r.place = any (places))
    insert into spanmq_adopt.obstacle (object, reason, folded_name)
    select r.object,
        case when r.folded_name is null or exists (select from pg_inherits i where i.inhrelid = r.oid)
             then 'it is not an ordinary table: drop or detach it'
             else format('queue %L has no table of this name', r.folded_name) end,
        r.folded_name
    from relation r where r.relkind not in ('r', 'p')
    union all
    select r.object, format('it is a part of a table of PGMQ and in another schema: alter table %s set schema pgmq',
                            r.oid::regclass), r.folded_name
    from relation r where r.place <> 'partman' and r.relnamespace <> 'pgmq'::regnamespace and r.relispartition
    union all
    select r.object,
        'its row-level security has no equal: drop it, and grant verbs on queues to roles, a queue for each tenant',
        r.folded_name
    from relation r
    where r.relrowsecurity or r.relforcerowsecurity or exists (select from pg_policy p where p.polrelid = r.oid)
    union all
    select r.object, format('it inherits from %s: end that', i.inhparent::regclass), r.folded_name
    from relation r join pg_inherits i on i.inhrelid = r.oid
    where not r.relispartition or not exists (select from spanmq_adopt.relation o where o.oid = i.inhparent)
    union all
    select format('trigger %I on %s', t.tgname, r.oid::regclass),
        case r.place when 'queue'
                     then 'a view has no such trigger: drop it, and use a worker, a subscription or a notification'
                     else 'it would run with the rights of the schema''s owner: drop it' end,
        r.folded_name
    from relation r join pg_trigger t on t.tgrelid = r.oid
    where not t.tgisinternal and t.tgparentid = 0
        and not (r.place = 'queue' and t.tgname = 'trigger_notify_queue_insert_listeners')
        and not (r.place = 'partman' and spanmq_adopt.is_of_extension('pg_proc'::regclass, t.tgfoid))
    union all
    select format('rule %I on %s', w.rulename, r.oid::regclass),
        case r.place when 'queue' then 'a queue has no rules of yours: drop it'
                     else 'it would run with the rights of the schema''s owner: drop it' end,
        r.folded_name
    from relation r join pg_rewrite w on w.ev_class = r.oid where r.relkind in ('r', 'p')
    union all
    select format('constraint %I on %s', k.conname, r.oid::regclass),
        'messages have no constraints of yours: drop it, and use a schema of bodies, or dedup_id for a unique one',
        r.folded_name
    from relation r join pg_constraint k on k.conrelid = r.oid
    where r.place = 'queue' and k.contype in ('c', 'f', 'x') and k.conparentid = 0 and k.conislocal
    union all
    select format('foreign key %I of %s', k.conname, k.conrelid::regclass),
        format('it ties %s to a table whose owner or rows could stop it: drop it', r.oid::regclass), r.folded_name
    from relation r join pg_constraint k on r.oid in (k.conrelid, k.confrelid)
    where r.place = 'archive' and k.contype = 'f' and k.conparentid = 0
    union all
    select r.object, format('column %I is missing, generated or of another type: it is not a table of PGMQ', w.name),
        r.folded_name
    from relation r
    cross join (values ('msg_id', 'bigint', true), ('read_ct', 'integer', true), ('message', 'jsonb', true),
                       ('enqueued_at', 'timestamp with time zone', true), ('vt', 'timestamp with time zone', true),
                       ('last_read_at', 'timestamp with time zone', false), ('headers', 'jsonb', false),
                       ('archived_at', 'timestamp with time zone', true)) w (name, type, is_required)
    left join pg_attribute a on a.attrelid = r.oid and a.attname = w.name and not a.attisdropped
    where r.place in ('queue', 'archive') and r.relkind in ('r', 'p') and not r.relispartition
        and (w.name <> 'archived_at' or r.place = 'archive')
        and case when a.attname is null then w.is_required
                 else format_type(a.atttypid, a.atttypmod) <> w.type or a.attgenerated <> '' end
    union all
    -- pg_depend names every object that is not PostgreSQL's own.
    select distinct pg_describe_object(d.classid, d.objid, d.objsubid),
        format('it uses %s, which is not of PostgreSQL or of an extension that a superuser installed: drop it',
               pg_describe_object(d.refclassid, d.refobjid, 0)),
        p.folded_name
    from spanmq_adopt.parts(places) p join pg_depend d on d.classid = p.classid and d.objid = p.objid
    where d.refclassid <> all ('{pg_class,pg_namespace,pg_extension,pg_constraint}'::regclass[])
        and not spanmq_adopt.is_of_extension(d.refclassid, d.refobjid)
    union all
    -- Functions that do anything but compute are not immutable. The settings of an extension are read only.
    select distinct pg_describe_object(p.classid, p.objid, 0),
        format('it calls %s, which is not immutable: drop it', f.oid::regprocedure), p.folded_name
    from spanmq_adopt.parts(places) p
    cross join lateral spanmq_adopt.functions_in(p.expression) c (oid) join pg_proc f on f.oid = c.oid
    where f.provolatile <> 'i' and p.place <> 'partman'
        and not (f.pronamespace = 'pg_catalog'::regnamespace and f.proname = any (
            '{now,transaction_timestamp,statement_timestamp,clock_timestamp,gen_random_uuid}'));
end $$;
