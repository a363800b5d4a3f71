-- Moves the tables that hold data out of the way, and drops the rest of PGMQ.
do $set_aside$
declare
    -- Not an extension without members, as `spanmq schema extension` registers it.
    extension_id oid := (select e.oid from pg_extension e where e.extname = 'pgmq'
                         and exists (select from pg_depend d
                                     where d.classid = 'pg_class'::regclass and d.objid = to_regclass('pgmq.meta')
                                     and d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid
                                     and d.deptype = 'e'));
    this record;
    list text;
begin
    -- A role that may create functions here could put its own before ours: an installation refuses it.
    for this in
        select distinct case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role
        from pg_namespace n cross join lateral aclexplode(n.nspacl) a
        where n.nspname = 'pgmq' and a.privilege_type = 'CREATE'
            and a.grantee not in (n.nspowner, quote_ident(current_user)::regrole)
    loop
        execute format('revoke create on schema pgmq from %s cascade', this.role);
    end loop;

    -- Up to 1.4, each queue's tables were members of the extension and would go with it. So might a table that was left
    -- over.
    for this in
        select c.oid::regclass as relation, case c.relkind when 'S' then 'sequence' when 'v' then 'view'
        else 'table' end as kind
        from pg_depend d join pg_class c on c.oid = d.objid
        where d.classid = 'pg_class'::regclass and d.refclassid = 'pg_extension'::regclass and d.refobjid = extension_id
            and d.deptype = 'e' and c.relkind in ('r', 'p', 'S', 'v')
            and c.oid not in (select x.objid from spanmq_adopt.doomed x where x.classid = 'pg_class'::regclass)
            or d.classid = 'pg_class'::regclass and d.refclassid = 'pg_extension'::regclass
            and d.refobjid = extension_id
            and d.deptype = 'e' and c.oid in (select q.source from spanmq_adopt.queue q)
    loop
        execute format('alter extension pgmq drop %s %s', this.kind, this.relation);
    end loop;

    for this in select q.source, q.archive from spanmq_adopt.queue q loop
        if this.source is not null then
            execute format('drop trigger if exists trigger_notify_queue_insert_listeners on %s', this.source);
            execute format('alter table %s set schema spanmq_adopt', this.source);
            if this.archive is not null then
                execute format('alter table %s set schema spanmq_adopt', this.archive);
            end if;
        end if;
    end loop;

    -- No "cascade": what else depends on these was found before, and if not, the take-over fails here.
    if extension_id is not null then
        drop extension pgmq;
    else
        select string_agg(r.oid::text, ', ') into list
            from unnest(array[to_regclass('pgmq.notify_insert_throttle'), to_regclass('pgmq.topic_bindings'),
                              to_regclass('pgmq.meta')]) r (oid)
            where r.oid is not null;
        execute 'drop table ' || list;
        select string_agg(d.objid::regprocedure::text, ', ') into list
            from spanmq_adopt.doomed d where d.classid = 'pg_proc'::regclass;
        if list is not null then
            execute 'drop function ' || list;
        end if;
        select string_agg(format('pgmq.%I', t.typname), ', ') into list
            from pg_type t where t.typnamespace = 'pgmq'::regnamespace and t.typtype = 'c'
                and t.typname in ('message_record', 'queue_record', 'metrics_result');
        if list is not null then
            execute 'drop type ' || list;
        end if;
    end if;
end
$set_aside$;
