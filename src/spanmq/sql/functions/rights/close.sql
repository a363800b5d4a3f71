-- Privileges that no verb gives and with which a role could reach past its verbs. They are revoked when an object is
-- made (the owner's default privileges may have granted them), by each upgrade, and by maintain().

-- Such privileges, on relations and on their columns, of one queue's, or (null) of all. Left to other roles are:
-- on pgmq.q_<name> and pgmq.a_<name>: all but TRIGGER, by which a role's code runs with the rights of another that
--   writes, and REFERENCES, by which it keeps rows from being deleted;
-- on the sequence of ids, on PGMQ's lists, which all queues share, and on views of logs: SELECT;
-- on the log of a queue: INSERT, to a role that has the verb bulk (see bulk.sql);
-- on the rest of spanmq_core and spanmq_call: nothing, but to read the ledger and to leave a proof (entries.sql).
create or replace function spanmq_core.privileges_to_close(this_queue int)
returns table (queue_id int, relation regclass, role text, privileges text)
language sql stable as $$
    -- There are thousands of relations, of which most have one of a few lists of privileges.
    with list as materialized (
        select l.relacl, l.relowner, a.grantee, a.privilege_type
        from (select distinct c.relacl, c.relowner from pg_class c
              where c.relnamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
                and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and c.relacl is not null) l
        cross join lateral aclexplode(l.relacl) a
        where a.grantee <> l.relowner and (a.grantee = 0 or not pg_has_role(a.grantee, l.relowner, 'usage'))),
    granted as (
        select c.oid, c.relname, c.relkind, c.relnamespace::regnamespace::text as place, l.grantee, l.privilege_type
        from list l join pg_class c on c.relacl = l.relacl and c.relowner = l.relowner
        where c.relnamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
          and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
        union all
        select c.oid, c.relname, c.relkind, c.relnamespace::regnamespace::text, a.grantee, a.privilege_type
        from pg_attribute t join pg_class c on c.oid = t.attrelid cross join lateral aclexplode(t.attacl) a
        where t.attacl is not null and c.relnamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
          -- Only these have columns with privileges: others are not looked up.
          and c.relkind in ('r', 'p', 'v', 'm', 'f')
          and a.grantee <> c.relowner and (a.grantee = 0 or not pg_has_role(a.grantee, c.relowner, 'usage'))
          and (c.oid <> 'spanmq_call.caller'::regclass or a.grantee <> 0 or a.privilege_type <> 'INSERT')),
    too_much as materialized (
        select g.*, coalesce(pg_partition_root(g.oid), g.oid) as root from granted g
        where case
            when g.place = 'spanmq' then g.privilege_type <> 'SELECT'
            when g.place = 'pgmq' and g.relkind <> 'S'
                 and g.relname not in ('meta', 'topic_bindings', 'notify_insert_throttle')
                then g.privilege_type in ('TRIGGER', 'REFERENCES')
            when g.place = 'pgmq' or g.relname in ('migration', 'release', 'object_checksum')
                then g.privilege_type <> 'SELECT'
            when g.privilege_type = 'INSERT' and g.relname ~ '^log_[0-9]+(_|$)'
                then not spanmq_core.may_write_log(g.grantee, g.relname)
            else true end)
    select o.queue_id, t.oid::regclass,
        case when t.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(t.grantee)) end,
        string_agg(distinct t.privilege_type, ', ' order by t.privilege_type)
    from too_much t
    -- In schema pgmq there may be other relations than ours.
    cross join lateral (
        select q.queue_id from pg_class c join spanmq_core.queue q
            on q.queue_view = t.oid or q.ids = t.oid and not q.is_subscription or 'a_' || q.folded_name = c.relname
        where t.place = 'pgmq' and c.oid = t.root and (c.relkind in ('v', 'S') or c.relname ~ '^a_')
        union all
        select case when t.place = 'spanmq_core' and t.relname ~ '^log_[0-9]+(_|$)'
                    then split_part(t.relname, '_', 2)::int end
        where t.place <> 'pgmq' or t.relname in ('meta', 'topic_bindings', 'notify_insert_throttle')) o
    where this_queue is null or o.queue_id = this_queue
    group by 1, 2, 3
$$;

-- Whether a role that has INSERT on a table of a log keeps it.
create or replace function spanmq_core.may_write_log(grantee oid, log_name name) returns boolean
language sql stable as $$
    select grantee <> 0 and spanmq_core.role_may(pg_get_userbyid(grantee)::text, split_part(log_name, '_', 2)::int,
                                                 'bulk')
$$;

-- Revokes such privileges, those on columns with them.
create or replace function spanmq_core.close_relation_to(
    relation regclass, role text, privileges text
) returns void
language plpgsql as $$
begin
    execute format('revoke %s on %s from %s cascade', privileges, relation, role);
    if relation = 'spanmq_call.caller'::regclass and role = 'public' then
        grant insert (proof) on spanmq_call.caller to public;
    end if;
end $$;

-- Revokes all of them; returns one row for each relation and role.
create or replace function spanmq_core.close_privileges(this_queue int)
returns table (queue_id int, detail text)
language plpgsql as $$
declare
    each record;
begin
    for each in select * from spanmq_core.privileges_to_close(this_queue) loop
        perform spanmq_core.close_relation_to(each.relation, each.role, each.privileges);
        queue_id := each.queue_id;
        detail := format('%s on %s from %s', each.privileges, each.relation, each.role);
        return next;
    end loop;
end $$;

-- Leaves other roles of the privileges on a new relation only these.
create or replace function spanmq_core.close_relation(
    relation regclass, left_open text[] default '{SELECT}'
) returns void
language plpgsql as $$
declare
    this record;
begin
    for this in
        select case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role,
               string_agg(distinct a.privilege_type, ', ') as privileges
        from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.oid = relation and a.grantee <> c.relowner and a.privilege_type <> all (left_open) group by 1
    loop
        execute format('revoke %s on %s from %s cascade', this.privileges, relation, this.role);
    end loop;
end $$;

-- The part of maintain() for privileges, a row for each that it revokes. With TRIGGER on a view go the triggers that a
-- role has made by it: a view of ours has no other. Those of an archive, which a program may have, are refused instead
-- (see foreign_code.sql). With CREATE on a schema go the functions that a role has made there, but for those in schema
-- pgmq, where programs have some: doctor() names them. It reads most of the catalogues, and maintain() is pinned.
create or replace function spanmq_core.close_opened() returns table (action text, queue text, detail text)
language plpgsql set enable_seqscan = on as $$
declare
    trigger_name text;
    view_name text;
    grantee text;
    schema_name text;
    function_name text;
    each record;
    refused int := 0;
begin
    -- By chance, and each for itself: a role that keeps a change of its archive open must not keep what others have.
    for each in select * from spanmq_core.privileges_to_close(null) order by random() loop
        begin
            perform spanmq_core.close_relation_to(each.relation, each.role, each.privileges);
            action := 'revoked privileges';
            queue := (select q.name from spanmq_core.queue q where q.queue_id = each.queue_id);
            detail := format('%s on %s from %s', each.privileges, each.relation, each.role);
            return next;
        exception when others then
            refused := refused + 1;
            exit when refused > 2;
        end;
    end loop;
    -- A role that may create puts functions of its own beside ours, which other roles then call.
    for schema_name, grantee in
        select distinct n.nspname,
            case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end
        from pg_namespace n cross join lateral aclexplode(n.nspacl) a
        where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core') and a.privilege_type = 'CREATE'
          and (a.grantee = 0 or not pg_has_role(a.grantee, n.nspowner, 'usage'))
    loop
        execute format('revoke create on schema %I from %s cascade', schema_name, grantee);
        return query values ('revoked privileges', null::text,
                             format('CREATE on schema %s from %s', schema_name, grantee));
    end loop;
    for function_name in
        select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname in ('spanmq', 'spanmq_call', 'spanmq_core') and not pg_has_role(p.proowner, n.nspowner, 'usage')
    loop
        execute format('drop routine %s', function_name);
        return query values ('dropped function', null::text, function_name);
    end loop;
    for trigger_name, view_name in
        select quote_ident(t.tgname), c.oid::regclass::text
        from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_proc p on p.oid = t.tgfoid
        where c.relkind = 'v' and not t.tgisinternal
          and c.relnamespace = any ('{pgmq,spanmq,spanmq_call,spanmq_core}'::regnamespace[])
          and not pg_has_role(p.proowner, c.relowner, 'usage')
    loop
        execute format('drop trigger %s on %s', trigger_name, view_name);
        return query values ('dropped trigger', null::text, format('%s on %s', trigger_name, view_name));
    end loop;
exception
    -- Such as of a transaction that grants at this moment. It must not keep the rest of maintain().
    when others then
        raise warning 'maintain() can''t revoke privileges: %', sqlerrm;
end $$;
